// How far the functions of kernels-templates/device/math.cuh are from exact on a card. Not a test: a table.
//
//   nvcc -std=c++17 -O2 -arch=sm_90 -I. bench/cuda_math.cu -o cuda_math && ./cuda_math [FUNCTION]
//   nvcc … -DCELLC_STORAGE_BF16 …       sigmoid and tanh as 16-bit cells have them
//
// float: every one of the 2^32 bit patterns (pow: 2^32 pairs) against the double overload on the card,
// which errs by 2^-29 of a place. double: a million arguments against the host's long double.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernels-templates/device/preamble.cuh"
// In this order: the functions are written in the preamble's names.
#include "kernels-templates/device/math.cuh"

struct Worst {
  unsigned long long places;  // in 1/1024 of a unit in the last place, over results that are normal numbers
  unsigned long long places_at;
  unsigned long long absolute;  // 1e-12
  unsigned long long wrong;     // NaN, infinity or zero where it should be something else, or the wrong sign
  unsigned long long wrong_at;
};

#define FUNCTIONS(X) X(exp) X(log) X(sin) X(cos) X(tanh) X(sigmoid) X(silu) X(gelu) X(softplus) X(erf) X(sqrt) X(rsqrt)

struct pow_pairs {
  static constexpr const char* name = "pow";
  __device__ static void both(unsigned bits, float& got, double& want) {
    // Neighbouring bits become unrelated arguments: half of them near 1, where results are numbers.
    const unsigned other = bits * 2654435761u ^ bits >> 15;
    const float x = other & 1 ? __uint_as_float(bits) : __uint_as_float(0x3f000000u + (bits >> 8));
    const float y = __uint_as_float((other & 0x83ffffffu) + 0x3e000000u);
    got = cellc::pow(x, y);
    want = cellc::pow(static_cast<double>(x), static_cast<double>(y));
  }
};
/// As a cell's step calls it, where the scale is in what comes before.
struct scaled_tanh_all {
  static constexpr const char* name = "scaled_tanh";
  __device__ static void both(unsigned bits, float& got, double& want) {
    const float x = __uint_as_float(bits);
    got = cellc::scaled_tanh(x * float(cellc::kTanhScale));
    want = cellc::tanh(static_cast<double>(x));
  }
};
#define DEFINE(f)                                                          \
  struct f##_all {                                                         \
    static constexpr const char* name = #f;                                \
    __device__ static void both(unsigned bits, float& got, double& want) { \
      const float x = __uint_as_float(bits);                               \
      got = cellc::f(x);                                                   \
      want = cellc::f(static_cast<double>(x));                             \
    }                                                                      \
  };
FUNCTIONS(DEFINE)
#undef DEFINE

template <class F>
__global__ void sweep(Worst* worst) {
  Worst own = {};
  const unsigned threads = gridDim.x * blockDim.x;  // a power of two
  for (unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x; i < 1ull << 32; i += threads) {
    float got;
    double want;
    F::both(static_cast<unsigned>(i), got, want);
    const float rounded = static_cast<float>(want);
    const float size = fabsf(rounded);
    if (want != want || isinf(rounded) || want == 0) {
      const bool same = want != want ? got != got : got == rounded && signbit(got) == signbit(rounded);
      if (!same) ++own.wrong, own.wrong_at = i;
      continue;
    }
    const double off = fabs(static_cast<double>(got) - want);
    if (!(off < 1e6 * fabs(want) + 1e-6)) {
      ++own.wrong, own.wrong_at = i;
      continue;
    }
    const unsigned long long absolute = static_cast<unsigned long long>(fmin(off * 1e12, 9e18));
    if (absolute > own.absolute) own.absolute = absolute;
    if (size < 1.17549435e-38f) continue;
    const double place = static_cast<double>(__uint_as_float((__float_as_uint(size) & 0x7f800000u))) * 0x1p-23;
    const unsigned long long places = static_cast<unsigned long long>(fmin(off / place * 1024, 9e18));
    if (places > own.places) own.places = places, own.places_at = i;
  }
  if (own.places > atomicMax(&worst->places, own.places)) worst->places_at = own.places_at;
  atomicMax(&worst->absolute, own.absolute);
  if (own.wrong) atomicAdd(&worst->wrong, own.wrong), worst->wrong_at = own.wrong_at;
}

#define CHECK(call)                                                 \
  if (const cudaError_t e = call; e != cudaSuccess) {               \
    std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(e)); \
    std::exit(4);                                                   \
  }

template <class F>
void print_floats(Worst* device) {
  CHECK(cudaMemset(device, 0, sizeof(Worst)));
  sweep<F><<<2048, 256>>>(device);
  Worst w;
  CHECK(cudaMemcpy(&w, device, sizeof w, cudaMemcpyDeviceToHost));
  std::printf("float  %-9s %10.2f places (at %08llx)  %.2e absolute  %llu wrong", F::name, w.places / 1024.0,
              w.places_at, w.absolute * 1e-12, w.wrong);
  if (w.wrong) std::printf(" (%08llx)", w.wrong_at);
  std::printf("\n");
  std::fflush(stdout);
}

#define KERNEL(f)                                                  \
  __global__ void f##_doubles(const double* x, double* y, int n) { \
    const int i = blockIdx.x * blockDim.x + threadIdx.x;           \
    if (i < n) y[i] = cellc::f(x[i]);                              \
  }
FUNCTIONS(KERNEL)
#undef KERNEL

long double exact(const char* f, long double x) {
  const auto is = [&](const char* name) { return std::strcmp(f, name) == 0; };
  if (is("exp")) return expl(x);
  if (is("log")) return logl(x);
  if (is("sin")) return sinl(x);
  if (is("cos")) return cosl(x);
  if (is("tanh")) return tanhl(x);
  if (is("sigmoid")) return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x));
  if (is("silu")) return x < 0 ? x * expl(x) / (1 + expl(x)) : x / (1 + expl(-x));
  if (is("gelu")) return 0.5L * x * erfcl(-x * sqrtl(0.5L));
  if (is("softplus")) return (x > 0 ? x : 0) + log1pl(expl(-fabsl(x)));
  if (is("erf")) return erfl(x);
  if (is("sqrt")) return sqrtl(x);
  return 1 / sqrtl(x);
}

int main(int count, char** words) {
  const auto asked = [&](const char* f) { return count < 2 || std::strcmp(words[1], f) == 0; };
  Worst* device;
  CHECK(cudaMalloc(&device, sizeof(Worst)));
#define PRINT(f) \
  if (asked(#f)) print_floats<f##_all>(device);
  FUNCTIONS(PRINT)
  PRINT(scaled_tanh)
#undef PRINT
  if (asked("pow")) print_floats<pow_pairs>(device);

  constexpr int kCount = 1 << 20;
  std::vector<double> x(kCount), y(kCount);
  double *dx, *dy;
  CHECK(cudaMalloc(&dx, kCount * sizeof(double)));
  CHECK(cudaMalloc(&dy, kCount * sizeof(double)));
  std::uint64_t state = 1;
  const auto report = [&](const char* f, void (*kernel)(const double*, double*, int)) {
    if (!asked(f)) return;
    const bool positive = !std::strcmp(f, "log") || !std::strcmp(f, "sqrt") || !std::strcmp(f, "rsqrt");
    for (double& v : x) {  // both signs, 2^-20 … 2^10; positive: 2^-300 … 2^300
      state = state * 6364136223846793005u + 1442695040888963407u;
      const double unit = static_cast<double>(state >> 11) * 0x1p-53;
      v = positive ? std::exp2(unit * 600 - 300) : (state >> 10 & 1 ? -1 : 1) * std::exp2(unit * 30 - 20);
    }
    CHECK(cudaMemcpy(dx, x.data(), kCount * sizeof(double), cudaMemcpyHostToDevice));
    kernel<<<kCount / 256, 256>>>(dx, dy, kCount);
    CHECK(cudaMemcpy(y.data(), dy, kCount * sizeof(double), cudaMemcpyDeviceToHost));
    double worst = 0, at = 0;
    for (int i = 0; i < kCount; ++i) {
      const long double want = exact(f, x[i]);
      if (!std::isnormal(static_cast<double>(want))) continue;
      const double places = static_cast<double>(fabsl(y[i] - want) / ldexpl(1, ilogbl(want) - 52));
      if (!(places <= worst)) worst = places, at = x[i];
    }
    std::printf("double %-9s %10.2f places (at %.17g)\n", f, worst, at);
  };
#define PRINT(f) report(#f, f##_doubles);
  FUNCTIONS(PRINT)
#undef PRINT
}
