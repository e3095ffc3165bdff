#include "export/gguf_values.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "adapters/merged_tensor.h"
#include "base/release_pages.h"
#include "formats/q8_0.h"

namespace trainer {
namespace {

void require_q8_range(const at::Tensor& values, const std::string& name) {
  const float largest = values.abs().max().item<float>();
  if (largest <= kQ8Largest) return;
  throw FormatError(concat("tensor '", name, "' has a value of magnitude ", largest,
                           ", beyond the range of Q8_0 (", kQ8Largest, "); export it as bf16 or fp32"));
}

}  // namespace

uint32_t gguf_file_type(GgufType type) {
  switch (type) {
    case GgufType::f32:
      return 0;
    case GgufType::f16:
      return 1;
    case GgufType::q8_0:
      return 7;
    case GgufType::bf16:
      return 32;
  }
  throw std::logic_error("a GgufType that is not known");
}

GgufType gguf_type_for(const std::vector<int64_t>& shape, GgufType wanted) {
  if (shape.size() < 2) return GgufType::f32;
  const bool in_blocks = shape.back() % kQ8BlockValues == 0;
  return wanted == GgufType::q8_0 && !in_blocks ? GgufType::f16 : wanted;
}

at::Tensor interleaved(const at::Tensor& rows, int64_t head_dim) {
  return rows.view({-1, 2, head_dim / 2, rows.size(1)}).transpose(1, 2).reshape({rows.size(0), -1});
}

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
  } else if (type == GgufType::q8_0) {
    require_q8_range(values, name);
    const int64_t count = values.numel();
    const at::Tensor from = bytes;
    bytes = at::empty({count / kQ8BlockValues * kQ8BlockBytes}, at::kByte);
    quantise_q8_0(from.const_data_ptr<float>(), count, static_cast<std::byte*>(bytes.data_ptr()));
  }
  out.write(static_cast<const char*>(bytes.const_data_ptr()), static_cast<std::streamsize>(bytes.nbytes()));
}

at::Tensor read_gguf_values(const GgufTensor& tensor, int64_t first, int64_t rows) {
  const int64_t count = std::max<int64_t>(tensor.shape.empty() ? 1 : tensor.shape[0], 1);
  const auto row_bytes = static_cast<int64_t>(tensor.nbytes) / count;
  auto* data = const_cast<std::byte*>(tensor.data) + first * row_bytes;
  at::Tensor values;
  if (tensor.type == GgufType::q8_0) {
    values = at::empty({rows, tensor.shape.back()}, at::kFloat);
    dequantise_q8_0(data, values.numel(), values.mutable_data_ptr<float>());
  } else {
    at::ScalarType type = at::kFloat;
    if (tensor.type == GgufType::f16) type = at::kHalf;
    if (tensor.type == GgufType::bf16) type = at::kBFloat16;
    const int64_t columns = row_bytes / static_cast<int64_t>(at::elementSize(type));
    values = at::from_blob(data, {rows, columns}, at::dtype(type)).to(at::kFloat, false, /*copy=*/true);
  }
  release_pages(data, rows * row_bytes);
  return values;
}

bool agree_in_gguf(const at::Tensor& values, const at::Tensor& expected, GgufType type) {
  if (type == GgufType::f32) return values.equal(expected);
  if (type == GgufType::f16) return values.equal(expected.to(at::kHalf).to(at::kFloat));
  if (type == GgufType::bf16) return values.equal(expected.to(at::kBFloat16).to(at::kFloat));
  // Half a step, plus the error of 127 steps because the step itself is rounded to fp16 (2^-11, or 2^-25).
  const at::Tensor blocks = expected.reshape({-1, kQ8BlockValues});
  const at::Tensor step = blocks.abs().amax(1, true) / 127;
  const at::Tensor bound =
      step * 0.5001 + at::maximum(step * std::ldexp(127.0, -11), at::full({1}, std::ldexp(127.0, -25)));
  return values.reshape_as(blocks).sub(blocks).abs().le(bound).all().item<bool>();
}

}  // namespace trainer
