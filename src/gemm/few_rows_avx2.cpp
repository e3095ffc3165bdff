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
  int64_t row = 0;
  for (; row + 4 <= in.rows; row += 4) few_rows::multiply_rows<Kind, 4, 3>(in, row);
  if (row + 2 <= in.rows) few_rows::multiply_rows<Kind, 2, 4>(in, row), row += 2;
  if (row < in.rows) few_rows::multiply_rows<Kind, 1, 8>(in, row);
}

}  // namespace

const FewRowsLoops* few_rows_loops_of_avx2() {
  static const bool there = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  static const FewRowsLoops loops{multiply_with_avx2<WidenedByAvx2<float>>,
                                  multiply_with_avx2<WidenedByAvx2<c10::BFloat16>>, nullptr};
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
