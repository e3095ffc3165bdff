#include "gemm/few_rows_loops.h"

namespace trainer {

#if defined(__x86_64__)

namespace {

struct VectorsOfAvx2 {
  typedef float Floats __attribute__((vector_size(32)));
  typedef uint32_t Words __attribute__((vector_size(32)));
  typedef uint16_t Halves __attribute__((vector_size(16)));
  static constexpr int kLanes = 8;
  static TRAINER_FEW_ROWS void load(const float* from, Floats& to) { std::memcpy(&to, from, sizeof to); }
  static TRAINER_FEW_ROWS void load(const c10::BFloat16* from, Floats& to) {
    Halves halves;
    std::memcpy(&halves, from, sizeof halves);
    const Words words = __builtin_convertvector(halves, Words) << 16;
    std::memcpy(&to, &words, sizeof to);
  }
};

template <class W>
using WidenedByAvx2 = few_rows::Widened<VectorsOfAvx2, W>;

// 12 of the 16 registers are sums, where there are that many rows.
template <class Kind>
__attribute__((target("avx2,fma"))) void multiply_with_avx2(const FewRows& in) {
  few_rows::multiply<Kind, /*outputs=*/3, /*outputs_of_two=*/4>(in);
}

template <class T>
__attribute__((target("avx2,fma"))) void put_with_avx2(const FewRows& in, T* out, int64_t stride, float scale,
                                                       bool begun) {
  few_rows::put(in, out, stride, scale, begun);
}

}  // namespace

const FewRowsLoops* few_rows_loops_of_avx2() {
  static const bool there = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  static const FewRowsLoops loops{multiply_with_avx2<WidenedByAvx2<float>>,
                                  multiply_with_avx2<WidenedByAvx2<c10::BFloat16>>, nullptr,
                                  put_with_avx2<float>, put_with_avx2<c10::BFloat16>};
  return there ? &loops : nullptr;
}

#else

const FewRowsLoops* few_rows_loops_of_avx2() { return nullptr; }

#endif

const FewRowsLoops* few_rows_loops() {
  static const FewRowsLoops* const found =
      few_rows_loops_of_avx512() ? few_rows_loops_of_avx512() : few_rows_loops_of_avx2();
  return found;
}

}  // namespace trainer
