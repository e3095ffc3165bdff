// The kernels of src/ops in one specialization. Include this once for each specialization, in a
// namespace that defines Element and kWidth.
#include "ops/activation.cu"
#include "ops/add_norm.cu"
#include "ops/attention_heads.cu"
#include "ops/attention_weights.cu"
#include "ops/causal_conv.cu"
#include "ops/coded_product.cu"
#include "ops/dropout.cu"
#include "ops/embedding_noise.cu"
#include "ops/fp8.cu"
#include "ops/gated_norm.cu"
#include "ops/nf4.cu"
#include "ops/packed_adapters.cu"
#include "ops/rms_norm.cu"
#include "ops/rotate_qk.cu"

namespace queries_1 {
constexpr int kQueries = 1;
#include "ops/cached_attention.cu"
}  // namespace queries_1
namespace queries_2 {
constexpr int kQueries = 2;
#include "ops/cached_attention.cu"
}  // namespace queries_2
namespace queries_4 {
constexpr int kQueries = 4;
#include "ops/cached_attention.cu"
}  // namespace queries_4
namespace queries_8 {
constexpr int kQueries = 8;
#include "ops/cached_attention.cu"
}  // namespace queries_8

inline void add_to(trainer::emulated::Gpu& gpu, const std::string& definitions) {
  using trainer::emulated::Callable;
  gpu.add("rms_norm.cu", definitions, "norm_forward", Callable<norm_forward>::call);
  gpu.add("rms_norm.cu", definitions, "norm_backward", Callable<norm_backward>::call);
  gpu.add("rms_norm.cu", definitions, "norm_backward_weight", Callable<norm_backward_weight>::call);
  gpu.add("add_norm.cu", definitions, "add_norm_forward", Callable<add_norm_forward>::call);
  gpu.add("add_norm.cu", definitions, "add_norm_backward", Callable<add_norm_backward>::call);
  gpu.add("activation.cu", definitions, "gated_forward", Callable<gated_forward>::call);
  gpu.add("activation.cu", definitions, "gated_backward", Callable<gated_backward>::call);
  gpu.add("gated_norm.cu", definitions, "gated_norm_forward", Callable<gated_norm_forward>::call);
  gpu.add("gated_norm.cu", definitions, "gated_norm_backward", Callable<gated_norm_backward>::call);
  gpu.add("rotate_qk.cu", definitions, "rotate_qk_forward", Callable<rotate_qk_forward>::call);
  gpu.add("rotate_qk.cu", definitions, "rotate_qk_backward", Callable<rotate_qk_backward>::call);
  gpu.add("rotate_qk.cu", definitions, "rotate_qk_backward_weight",
          Callable<rotate_qk_backward_weight>::call);
  gpu.add("causal_conv.cu", definitions, "convolve", Callable<convolve>::call);
  gpu.add("causal_conv.cu", definitions, "convolve_backward", Callable<convolve_backward>::call);
  gpu.add("causal_conv.cu", definitions, "sum_weight_parts", Callable<sum_weight_parts>::call);
  gpu.add("coded_product.cu", definitions, "multiply_nf4", Callable<multiply_nf4>::call);
  gpu.add("coded_product.cu", definitions, "multiply_fp8", Callable<multiply_fp8>::call);
  gpu.add("coded_product.cu", definitions, "sum_parts", Callable<sum_parts>::call);
  gpu.add("dropout.cu", definitions, "drop", Callable<drop>::call);
  gpu.add("embedding_noise.cu", definitions, "noise", Callable<noise>::call);
  gpu.add("attention_heads.cu", definitions, "move_heads", Callable<move_heads>::call);
  gpu.add("fp8.cu", definitions, "widen_fp8", Callable<widen_fp8>::call);
  gpu.add("fp8.cu", definitions, "quantise_fp8_rows", Callable<quantise_fp8_rows>::call);
  gpu.add("fp8.cu", definitions, "transpose_codes", Callable<transpose_codes>::call);
  gpu.add("nf4.cu", definitions, "dequantise", Callable<dequantise>::call);
  gpu.add("attention_weights.cu", definitions, "add_by_bucket", Callable<add_by_bucket>::call);
  gpu.add("attention_weights.cu", definitions, "weights_forward", Callable<weights_forward>::call);
  gpu.add("attention_weights.cu", definitions, "weights_backward", Callable<weights_backward>::call);
  gpu.add("attention_weights.cu", definitions, "weights_backward_bias",
          Callable<weights_backward_bias>::call);
  const auto add_cached = [&](int queries, trainer::emulated::Call attend, trainer::emulated::Call finish) {
    const std::string of_queries = definitions + " kQueries=" + std::to_string(queries);
    gpu.add("cached_attention.cu", of_queries, "attend_chunk", attend);
    gpu.add("cached_attention.cu", of_queries, "put_chunks_together", finish);
  };
  add_cached(1, Callable<queries_1::attend_chunk>::call, Callable<queries_1::put_chunks_together>::call);
  add_cached(2, Callable<queries_2::attend_chunk>::call, Callable<queries_2::put_chunks_together>::call);
  add_cached(4, Callable<queries_4::attend_chunk>::call, Callable<queries_4::put_chunks_together>::call);
  add_cached(8, Callable<queries_8::attend_chunk>::call, Callable<queries_8::put_chunks_together>::call);
  if (kWidth > 1) return;
  // Its kernels move single elements.
  gpu.add("packed_adapters.cu", definitions.substr(0, definitions.find(' ')), "pack_adapters",
          Callable<pack_adapters>::call);
  gpu.add("packed_adapters.cu", definitions.substr(0, definitions.find(' ')), "pack_all_adapters",
          Callable<pack_all_adapters>::call);
  gpu.add("packed_adapters.cu", definitions.substr(0, definitions.find(' ')), "add_tensors",
          Callable<add_tensors>::call);
}
