#pragma once
// The BLAS of this process: a shared library that is loaded with the first product, since OpenBLAS starts threads as it
// is loaded and ends a process that gets none; most commands have no product to compute.
#include <cblas.h>

namespace cellc {

struct Blas {
  decltype(&cblas_sgemm) sgemm = nullptr;
  decltype(&cblas_dgemm) dgemm = nullptr;
  // Of OpenBLAS; null in others.
  void (*set_threads)(int) = nullptr;
  int (*threads)() = nullptr;

  /// c[m, n] = a[m, k] times b, or its transpose. Row-major.
  void multiply(CBLAS_TRANSPOSE transpose, blasint m, blasint n, blasint k, const float* a, blasint lda, const float* b,
                blasint ldb, float* c, blasint ldc) const {
    sgemm(CblasRowMajor, CblasNoTrans, transpose, m, n, k, 1, a, lda, b, ldb, 0, c, ldc);
  }
  void multiply(CBLAS_TRANSPOSE transpose, blasint m, blasint n, blasint k, const double* a, blasint lda,
                const double* b, blasint ldb, double* c, blasint ldc) const {
    dgemm(CblasRowMajor, CblasNoTrans, transpose, m, n, k, 1, a, lda, b, ldb, 0, c, ldc);
  }
};

/// Throws DeviceError where there is none, or the system has no room for it.
const Blas& blas();

/// While it lives, products take one thread each: they are cut among our own, which more would disturb, and bits would
/// depend on how many there are. What the process had set stands again when the last of these is gone. Throws
/// DeviceError where the address space has no room for what BLAS keeps beside the matrices.
class BlasCall {
 public:
  BlasCall();
  ~BlasCall();
  BlasCall(const BlasCall&) = delete;
  BlasCall& operator=(const BlasCall&) = delete;
};

}  // namespace cellc
