#include "export/nf4_export.h"

#include <algorithm>
#include <numeric>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/join_some.h"
#include "base/release_pages.h"
#include "formats/bitsandbytes.h"
#include "models/tensor_views.h"

namespace trainer {
namespace {

const char* torch_name(Dtype dtype) {
  if (dtype == Dtype::bf16) return "bfloat16";
  return dtype == Dtype::f16 ? "float16" : "float32";
}

// Scales or a map. What is returned holds the tensor.
TensorSource source_of(const at::Tensor& tensor) {
  const Dtype dtype = tensor.scalar_type() == at::kByte ? Dtype::u8 : Dtype::f32;
  return {dtype, tensor.sizes().vec(), [tensor](std::ostream& out) {
            out.write(static_cast<const char*>(tensor.const_data_ptr()),
                      static_cast<std::streamsize>(tensor.nbytes()));
          }};
}

TensorSource source_of(const std::string& text) {
  return {Dtype::u8, {static_cast<int64_t>(text.size())}, [text](std::ostream& out) { out << text; }};
}

template <class Values>
at::Tensor tensor_of(const Values& values) {
  return at::tensor(at::ArrayRef<float>(values.data(), values.size()), at::kFloat);
}

// The same characters as Python's json.dumps.
std::string state_text(const Nf4Tensor& tensor, Dtype dtype) {
  std::vector<std::string> sizes;
  for (const int64_t size : tensor.shape) sizes.push_back(std::to_string(size));
  std::string text = concat(R"({"quant_type": "nf4", "blocksize": )", kNf4Block, R"(, "dtype": ")",
                            torch_name(dtype), R"(", "shape": [)", join(sizes), "]");
  if (tensor.double_quantised()) {
    text += concat(R"(, "nested_blocksize": )", kNf4ScaleBlock,
                   R"(, "nested_dtype": "float32", "nested_offset": )",
                   nlohmann::json(static_cast<double>(tensor.offset)).dump());
  }
  return text + "}";
}

// Each value is at most half the widest step of NF4 from the one that it was made from, beside the rounding
// to the type (2^-9 in bf16) and the error of a scale.
bool agree(const at::Tensor& found, const at::Tensor& expected, const at::Tensor& scales, float spread) {
  constexpr double kHalfStep = 0.1519, kRounding = 0.004, kScaleStep = 0.01;
  const int64_t missing = scales.numel() * kNf4Block - expected.numel();
  const auto blocks = [&](const at::Tensor& values) {
    return at::constant_pad_nd(values.flatten(), {0, missing}).view({-1, kNf4Block});
  };
  const at::Tensor wanted = blocks(expected), largest = wanted.abs().amax(1);
  const at::Tensor error = scales.sub(largest).abs();
  const at::Tensor bound = largest * (kHalfStep + kRounding) + error + 1e-30;
  return error.le(largest * kRounding + kScaleStep * spread + 1e-30).all().item<bool>() &&
         blocks(found).sub(wanted).abs().le(bound.unsqueeze(1)).all().item<bool>();
}

}  // namespace

Nf4Export::Nf4Export(const MergedModel& model, const Quantisation& quantisation)
    : model_(model), quantisation_(quantisation) {
  for (const std::string& name : nf4_weights(model.base, quantisation)) {
    const MergedTensor& tensor = model.plan.tensors.at(name);
    Nf4Tensor& scales = scales_[name] = tensor.to_nf4(name, quantisation.double_quant);
    scales.codes = at::Tensor();
  }
}

void Nf4Export::add_parts(const std::string& name, const MergedTensor& tensor, TensorSources& sources) const {
  static const at::Tensor map = tensor_of(kNf4Values), nested_map = tensor_of(dynamic_map(true));
  const Nf4Tensor& scales = scales_.at(name);
  sources[name] = {Dtype::u8, {(scales.numel() + 1) / 2, 1}, [this, &tensor, name](std::ostream& out) {
                     const at::Tensor codes = tensor.to_nf4(name, quantisation_.double_quant).codes;
                     out.write(static_cast<const char*>(codes.const_data_ptr()),
                               static_cast<std::streamsize>(codes.nbytes()));
                     if (tensor.nf4)
                       release_pages(tensor.base.data, static_cast<int64_t>(tensor.base.nbytes));
                   }};
  sources[name + kNf4Scales] = source_of(scales.scales);
  sources[name + kNf4Map] = source_of(map);
  if (scales.double_quantised()) {
    sources[name + kNf4NestedScales] = source_of(scales.nested_scales);
    sources[name + kNf4NestedMap] = source_of(nested_map);
  }
  sources[name + kNf4State] = source_of(state_text(scales, tensor.dtype));
}

TensorSources Nf4Export::sources() const {
  TensorSources sources;
  for (const auto& [name, tensor] : model_.plan.tensors) {
    if (scales_.contains(name)) {
      add_parts(name, tensor, sources);
    } else {
      sources[name] = {tensor.dtype, tensor.base.shape,
                       [&name = name, &tensor = tensor](std::ostream& to) { tensor.write(to, name); }};
    }
  }
  return sources;
}

nlohmann::ordered_json Nf4Export::config_changes() const {
  nlohmann::ordered_json changes = model_.changes;
  nlohmann::ordered_json skipped;  // null: what Transformers leaves out by itself
  if (model_.stored_in_nf4) {
    const nlohmann::json stored = read_model_config(model_.base).at("quantization_config");
    if (stored.contains("llm_int8_skip_modules")) skipped = stored["llm_int8_skip_modules"];
  }
  changes["quantization_config"] = {{"_load_in_4bit", true},
                                    {"_load_in_8bit", false},
                                    {"bnb_4bit_compute_dtype", torch_name(model_.most_common_dtype())},
                                    {"bnb_4bit_quant_storage", "uint8"},
                                    {"bnb_4bit_quant_type", "nf4"},
                                    {"bnb_4bit_use_double_quant", quantisation_.double_quant},
                                    {"llm_int8_enable_fp32_cpu_offload", false},
                                    {"llm_int8_has_fp16_weight", false},
                                    {"llm_int8_skip_modules", skipped},
                                    {"llm_int8_threshold", 6.0},
                                    {"load_in_4bit", true},
                                    {"load_in_8bit", false},
                                    {"quant_method", "bitsandbytes"}};
  return changes;
}

std::string Nf4Export::check(const std::filesystem::path& directory) const {
  const at::NoGradGuard no_grad;
  const MergedModel written = open_merged(directory);
  for (const auto& [name, scales] : scales_) {
    const MergedTensor& tensor = model_.plan.tensors.at(name);
    const Nf4Tensor found = written.plan.tensors.at(name).to_nf4(name, quantisation_.double_quant);
    const at::Tensor of_blocks = scales_of(found);
    const float spread = (of_blocks - found.offset).abs().max().item<float>();
    const int64_t columns = found.shape.at(1);
    int64_t first = 0;  // value
    tensor.in_rows(kNf4Block / std::gcd(kNf4Block, columns), [&](const at::Tensor& rows) {
      const at::Tensor own =
          of_blocks.narrow(0, first / kNf4Block, (rows.numel() + kNf4Block - 1) / kNf4Block);
      const at::Tensor values = dequantise_nf4(found, first, rows.numel(), at::kFloat);
      if (!agree(values, rows, own, found.double_quantised() ? spread : 0)) {
        throw of_family(ErrorCode::export_check,
                        FormatError(concat(directory.string(), ": tensor '", name,
                                           "' differs from what was written when ",
                                           "it is read again; is the disk damaged?")));
      }
      first += rows.numel();
    });
    const TensorView& codes = written.plan.tensors.at(name).base;
    release_pages(codes.data, static_cast<int64_t>(codes.nbytes));
  }
  return concat("read again from disk, ", scales_.size(),
                " weights in NF4 have the model's values within a step");
}

}  // namespace trainer
