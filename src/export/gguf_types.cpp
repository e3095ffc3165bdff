#include "export/gguf_types.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numeric>
#include <string_view>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "adapters/merged_tensor.h"
#include "base/mappings.h"
#include "export/k_quants.h"
#include "formats/gguf_blocks.h"

namespace trainer {

uint32_t gguf_file_type(GgufType type) {
  switch (type) {
    case GgufType::f32:
      return 0;
    case GgufType::f16:
      return 1;
    case GgufType::q8_0:
      return 7;
    case GgufType::q5_0:
      return 8;
    case GgufType::q4_k:
      return 15;
    case GgufType::q6_k:
      return 18;
    case GgufType::bf16:
      return 32;
  }
  throw std::logic_error("a GgufType that is not known");
}

namespace {

bool stays_fp32(const GgufShape& tensor) {
  const std::string_view name = tensor.name;
  if (tensor.shape.size() < 2 || name.ends_with("_norm.weight")) return true;
  constexpr std::array<std::string_view, 3> small{"ssm_conv1d.weight", "shortconv.conv.weight",
                                                  "attn_rel_b.weight"};
  return std::ranges::any_of(small, [&](std::string_view end) { return name.ends_with(end); });
}

// What llama-quantize leaves as it is.
bool stays_whole(const GgufShape& tensor) { return tensor.name == "per_layer_model_proj.weight"; }

// The type, or the next one whose blocks fit the rows.
GgufType fitting(GgufType type, int64_t columns) {
  if (columns % gguf_block(type).values == 0) return type;
  if (type == GgufType::q4_k) return fitting(GgufType::q5_0, columns);
  if (type == GgufType::q6_k) return fitting(GgufType::q8_0, columns);
  return GgufType::f16;
}

// The number in "blk.3.ffn_up.weight"; -1: none.
int64_t block_of(std::string_view name) {
  constexpr std::string_view begin = "blk.";
  if (!name.starts_with(begin)) return -1;
  int64_t block = -1;
  std::from_chars(name.data() + begin.size(), name.data() + name.size(), block);
  return block;
}

// The mix of llama-quantize, https://github.com/ggml-org/llama.cpp (src/llama-quant.cpp). It goes through the
// tensors by their layers, then by their names, and counts.
class Q4Km {
 public:
  Q4Km(const std::vector<GgufShape>& tensors, int64_t blocks) : downs_(blocks) {
    for (const GgufShape& tensor : tensors) {
      values_ += is_value(tensor.name) ? 1 : 0;
      tied_ = tied_ && tensor.name != kOutput;
    }
  }

  GgufType next(const GgufShape& tensor) {
    const bool is_output = tensor.name == kOutput || (tied_ && tensor.name == "token_embd.weight");
    // An output whose rows are no blocks gets Q8_0, as Q6_K does.
    bool more = is_output;
    if (is_value(tensor.name)) more = has_more_bits(value_++, values_);
    if (tensor.name.find("ffn_down") != std::string::npos) more = has_more_bits(down_++, downs_);
    return more ? GgufType::q6_k : GgufType::q4_k;
  }

 private:
  static constexpr std::string_view kOutput = "output.weight";
  static bool is_value(const std::string& name) {
    return name.find("attn_v.weight") != std::string::npos ||
           name.find("attn_qkv.weight") != std::string::npos;
  }
  // The first and the last eighth, and every third between.
  static bool has_more_bits(int64_t i, int64_t count) {
    return i < count / 8 || i >= 7 * count / 8 || (i - count / 8) % 3 == 2;
  }

  int64_t downs_, values_ = 0, value_ = 0, down_ = 0;
  bool tied_ = true;
};

}  // namespace

std::vector<GgufType> gguf_types(const std::vector<GgufShape>& tensors, GgufType type, int64_t blocks) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {},
                    [&](size_t i) { return std::pair(block_of(tensors[i].name), tensors[i].name); });
  std::vector<GgufType> types(tensors.size());
  Q4Km mix(tensors, blocks);
  for (const size_t i : order) {
    const GgufShape& tensor = tensors[i];
    GgufType wanted = type == GgufType::q4_k ? mix.next(tensor) : type;
    if (stays_whole(tensor) && gguf_block(type).values > 1) wanted = GgufType::f16;
    types[i] = stays_fp32(tensor) ? GgufType::f32 : fitting(wanted, tensor.shape.back());
  }
  return types;
}

namespace {

// What is different between the types that are kept in blocks.
struct BlockType {
  GgufType type;
  float largest;  // of magnitudes whose scale fits in fp16
  void (*quantise)(const float* values, int64_t count, std::byte* blocks);
  void (*dequantise)(const std::byte* blocks, int64_t count, float* values);
};

constexpr std::array kBlockTypes{
    BlockType{GgufType::q8_0, kQ8Largest, quantise_q8_0, dequantise_q8_0},
    BlockType{GgufType::q5_0, kKQuantsLargest, quantise_q5_0, dequantise_q5_0},
    BlockType{GgufType::q4_k, kKQuantsLargest, quantise_q4_k, dequantise_q4_k},
    BlockType{GgufType::q6_k, kKQuantsLargest, quantise_q6_k, dequantise_q6_k},
};

const BlockType* block_type(GgufType type) {
  const auto* found = std::ranges::find(kBlockTypes, type, &BlockType::type);
  return found == kBlockTypes.end() ? nullptr : found;
}

void require_range(const at::Tensor& values, const BlockType& type, const std::string& name) {
  const float largest = values.numel() == 0 ? 0.0f : values.abs().max().item<float>();
  if (largest <= type.largest) return;
  throw FormatError(concat("tensor '", name, "' has a value of magnitude ", largest, ", beyond the range of ",
                           gguf_type_name(type.type), " (", type.largest, "); export it as bf16 or fp32"));
}

// Calls `use` with the first of some blocks and their number, on several threads.
template <class Use>
void in_blocks(int64_t count, const GgufBlock& block, const Use& use) {
  constexpr int64_t at_least = 1 << 14;  // values of a thread
  at::parallel_for(0, count / block.values, at_least / block.values,
                   [&](int64_t begin, int64_t end) { use(begin, end - begin); });
}

at::Tensor in_block_type(const at::Tensor& values, const BlockType& type) {
  const GgufBlock block = gguf_block(type.type);
  const at::Tensor out = at::empty({values.numel() / block.values * block.bytes}, at::kByte);
  const auto* from = values.const_data_ptr<float>();
  auto* to = static_cast<std::byte*>(out.mutable_data_ptr());
  in_blocks(values.numel(), block, [&](int64_t first, int64_t blocks) {
    type.quantise(from + first * block.values, blocks * block.values, to + first * block.bytes);
  });
  return out;
}

}  // namespace

void write_gguf_values(const at::Tensor& values, GgufType type, const std::string& name, std::ostream& out) {
  if (!values.isfinite().all().item<bool>())
    throw FormatError(
        concat("tensor '", name, "' has values that are NaN or infinite; the model is damaged"));
  at::Tensor bytes = values.contiguous();
  if (type == GgufType::f16) {
    require_fp16_range(values, name);
    bytes = values.to(at::kHalf);
  } else if (type == GgufType::bf16) {
    bytes = values.to(at::kBFloat16);
  } else if (const BlockType* blocks = block_type(type)) {
    require_range(values, *blocks, name);
    bytes = in_block_type(bytes, *blocks);
  }
  bytes = bytes.contiguous();
  out.write(static_cast<const char*>(bytes.const_data_ptr()), static_cast<std::streamsize>(bytes.nbytes()));
}

at::Tensor read_gguf_values(const GgufTensor& tensor, int64_t first, int64_t rows) {
  const int64_t count = std::max<int64_t>(tensor.shape.empty() ? 1 : tensor.shape[0], 1);
  const auto row_bytes = static_cast<int64_t>(tensor.nbytes) / count;
  auto* data = const_cast<std::byte*>(tensor.data) + first * row_bytes;
  at::Tensor values;
  if (const BlockType* type = block_type(tensor.type)) {
    const GgufBlock block = gguf_block(tensor.type);
    values = at::empty({rows, tensor.shape.back()}, at::kFloat);
    auto* to = values.mutable_data_ptr<float>();
    in_blocks(values.numel(), block, [&](int64_t begin, int64_t blocks) {
      type->dequantise(data + begin * block.bytes, blocks * block.values, to + begin * block.values);
    });
  } else {
    at::ScalarType type_here = at::kFloat;
    if (tensor.type == GgufType::f16) type_here = at::kHalf;
    if (tensor.type == GgufType::bf16) type_here = at::kBFloat16;
    const int64_t columns = row_bytes / static_cast<int64_t>(at::elementSize(type_here));
    values = at::from_blob(data, {rows, columns}, at::dtype(type_here)).to(at::kFloat, false, /*copy=*/true);
  }
  release_pages(data, rows * row_bytes);
  return values;
}

namespace {

// A step of a block of 32 values is at most its range over 15 (Q4_K), its magnitude over 15 (Q5_0) or over 31
// (Q6_K). Searches trade single values for the sum, so that a value may be off by more than half a step; two
// steps are beyond every search. And the scale of scales is fp16, of which 2^-24 is the least.
bool agree_in_few_bits(const at::Tensor& values, const at::Tensor& expected, GgufType type) {
  const at::Tensor blocks = expected.reshape({-1, gguf_block(type).values});
  const at::Tensor range = blocks.amax(1, true).clamp_min(0) - blocks.amin(1, true).clamp_max(0);
  const double steps = type == GgufType::q6_k ? 31 : 15;
  const double scales = type == GgufType::q6_k ? 128 : type == GgufType::q4_k ? 63 : 1;
  const at::Tensor bound = range * (2 / steps) + std::ldexp(steps * scales, -24);
  return values.reshape_as(blocks).sub(blocks).abs().le(bound).all().item<bool>();
}

}  // namespace

bool agree_in_gguf(const at::Tensor& values, const at::Tensor& expected, GgufType type) {
  if (type == GgufType::f32) return values.equal(expected);
  if (type == GgufType::f16) return values.equal(expected.to(at::kHalf).to(at::kFloat));
  if (type == GgufType::bf16) return values.equal(expected.to(at::kBFloat16).to(at::kFloat));
  if (type != GgufType::q8_0) return agree_in_few_bits(values, expected, type);
  // Half a step, plus the error of 127 steps because the step itself is rounded to fp16 (2^-11, or 2^-25).
  const at::Tensor blocks = expected.reshape({-1, kQ8BlockValues});
  const at::Tensor step = blocks.abs().amax(1, true) / 127;
  const at::Tensor bound =
      step * 0.5001 + at::maximum(step * std::ldexp(127.0, -11), at::full({1}, std::ldexp(127.0, -25)));
  return values.reshape_as(blocks).sub(blocks).abs().le(bound).all().item<bool>();
}

}  // namespace trainer
