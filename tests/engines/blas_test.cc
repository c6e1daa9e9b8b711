// Products leave the BLAS of a process as they found it.
#include "runtime/cpu/blas.h"

#include <gtest/gtest.h>

#include "runtime/cpu/products.h"

namespace cellc {
namespace {

TEST(Blas, KeepsTheThreadsOfItsHost) {
  if (!blas().set_threads) GTEST_SKIP() << "no OpenBLAS";
  const int before = blas().threads();
  for (const int threads : {3, 1}) {
    blas().set_threads(threads);
    {
      const BlasCall call, another;
      EXPECT_EQ(blas().threads(), 1);
    }
    EXPECT_EQ(blas().threads(), threads);
    const float matrix[4] = {1, 2, 3, 4}, operand[2] = {1, 1};
    float result[2] = {};
    multiply_rows({1, 2, 2}, true, Dtype::F32, matrix, operand, result, 1);
    EXPECT_EQ(result[0], 3);
    EXPECT_EQ(result[1], 7);
    EXPECT_EQ(blas().threads(), threads);
  }
  blas().set_threads(before);
}

}  // namespace
}  // namespace cellc
