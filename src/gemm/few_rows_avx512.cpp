#include "gemm/few_rows_loops.h"

namespace trainer {

#if defined(__x86_64__)

namespace {

// Plain vectors of GCC's: what they do is compiled where it is inlined, for that processor.
struct VectorsOfAvx512 {
  typedef float Floats __attribute__((vector_size(64)));
  typedef uint32_t Words __attribute__((vector_size(64)));
  typedef uint16_t Halves __attribute__((vector_size(32)));
  static constexpr int kLanes = 16;
  static TRAINER_FEW_ROWS void load(const float* from, Floats& to) { std::memcpy(&to, from, sizeof to); }
  static TRAINER_FEW_ROWS void load(const c10::BFloat16* from, Floats& to) {
    Halves halves;
    std::memcpy(&halves, from, sizeof halves);
    const Words words = __builtin_convertvector(halves, Words) << 16;
    std::memcpy(&to, &words, sizeof to);
  }
};

// Sums in fp32 of pairs of bf16.
struct PairsOfAvx512 {
  using X = c10::BFloat16;
  using Weight = c10::BFloat16;
  using Loaded = VectorsOfAvx512::Floats;
  static constexpr int kLanes = 16, kStep = 32;
  static TRAINER_FEW_ROWS void load(const c10::BFloat16* from, Loaded& to) {
    std::memcpy(&to, from, sizeof to);
  }
  static TRAINER_FEW_ROWS void add(Loaded& sum, const Loaded& x, const Loaded& w) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w));
  }
};

template <class W>
using WidenedByAvx512 = few_rows::Widened<VectorsOfAvx512, W>;

#define TRAINER_FOR_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma")))

// With 16 of the 32 registers as sums the loop is not slower than with 24, and these are added up four at
// once.
template <class Kind>
TRAINER_FOR_AVX512 void multiply_with_avx512(const FewRows& in) {
  few_rows::multiply<Kind, /*outputs=*/4, /*outputs_of_two=*/8>(in);
}

template <class T>
TRAINER_FOR_AVX512 void put_with_avx512(const FewRows& in, T* out, int64_t stride, float scale, bool begun) {
  few_rows::put(in, out, stride, scale, begun);
}

}  // namespace

const FewRowsLoops* few_rows_loops_of_avx512() {
  static const bool there = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                            __builtin_cpu_supports("fma");
  // Intel's instruction for bf16 pairs runs at half the rate of fp32.
  static const bool pairs = __builtin_cpu_supports("avx512bf16") && __builtin_cpu_is("amd");
  static const FewRowsLoops loops{multiply_with_avx512<WidenedByAvx512<float>>,
                                  multiply_with_avx512<WidenedByAvx512<c10::BFloat16>>,
                                  pairs ? multiply_with_avx512<PairsOfAvx512> : nullptr,
                                  put_with_avx512<float>, put_with_avx512<c10::BFloat16>};
  return there ? &loops : nullptr;
}

#else

const FewRowsLoops* few_rows_loops_of_avx512() { return nullptr; }

#endif

}  // namespace trainer
