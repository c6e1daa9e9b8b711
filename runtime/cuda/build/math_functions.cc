// Every operator that ops.def says is a function of math.cuh is one, for float and double: what is missing stops the
// build of cellc, not that of a kernel on somebody's card.
#include <type_traits>

#define CELLC_EMULATOR
#define CELLC_DEVICE [[maybe_unused]] static inline
using Real = double;
#include "kernels-templates/device/math.cuh"

namespace cellc {

template <typename T>
struct HasFunctions {
#define CELLC_NUMBERS_1 T()
#define CELLC_NUMBERS_2 T(), T()
#define CELLC_NUMBERS_3 T(), T(), T()
#define CELLC_CUDA_Inline(text, arity)
#define CELLC_CUDA_Function(text, arity) \
  static_assert(std::is_same_v<decltype(cellc::text(CELLC_NUMBERS_##arity)), T>, #text " of math.cuh");
#define CELLC_CALL(Name, text, arity, slope, values, cost, bits, zero, range, llvm, cuda, ...) \
  CELLC_CUDA_##cuda(text, arity)
#include "compiler/graph/ops.def"
};
template struct HasFunctions<float>;
template struct HasFunctions<double>;

}  // namespace cellc
