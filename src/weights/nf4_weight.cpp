// NF4: the row of weight_formats() and a frozen weight that is kept so.
#include "weights/nf4_weight.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <ATen/ATen.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "formats/bitsandbytes.h"
#include "ops/nf4.h"
#include "weights/weight_format.h"

namespace trainer {

at::Tensor Nf4Weight::rows(int64_t first, int64_t count, at::ScalarType type) const {
  const int64_t columns = tensor_.shape[1];
  return dequantise(tensor_, first * columns, count * columns, type).view({count, columns});
}

at::Tensor Nf4Weight::look_up(const at::Tensor& ids, at::ScalarType type) const {
  return at::embedding(rows(0, tensor_.shape[0], type), ids);
}

std::vector<at::Tensor> Nf4Weight::tensors() const {
  std::vector<at::Tensor> out{tensor_.codes, tensor_.scales};
  if (tensor_.double_quantised()) out.push_back(tensor_.nested_scales);
  return out;
}

std::shared_ptr<const WeightSource> Nf4Weight::with_storage(const std::vector<at::Tensor>& copies) const {
  Nf4Tensor tensor = tensor_;
  tensor.codes = copies.at(0);
  tensor.scales = copies.at(1);
  if (tensor.double_quantised()) tensor.nested_scales = copies.at(2);
  return std::make_shared<Nf4Weight>(std::move(tensor), type_);
}

std::string Nf4Weight::metadata() const {
  return {reinterpret_cast<const char*>(&tensor_.offset), sizeof tensor_.offset};
}

std::shared_ptr<const WeightSource> Nf4Weight::with_metadata(const std::string& metadata) const {
  Nf4Tensor tensor = tensor_;
  TORCH_CHECK(metadata.size() == sizeof tensor.offset, "not the metadata of an NF4 weight");
  std::memcpy(&tensor.offset, metadata.data(), metadata.size());
  return std::make_shared<Nf4Weight>(std::move(tensor), type_);
}

const WeightFormat* Nf4Weight::format() const { return &nf4_format(); }

namespace {

const char* torch_name(Dtype dtype) {
  if (dtype == Dtype::bf16) return "bfloat16";
  return dtype == Dtype::f16 ? "float16" : "float32";
}

// The bytes of a part as one row of numbers of this type.
TensorView as_numbers(const TensorView& view, Dtype dtype) {
  return {dtype, {static_cast<int64_t>(view.nbytes / dtype_size(dtype))}, view.data, view.nbytes};
}

// Scales or a map.
WrittenPart nf4_part(const char* suffix, const at::Tensor& tensor) {
  return {suffix, tensor.scalar_type() == at::kByte ? Dtype::u8 : Dtype::f32, tensor.sizes().vec(), tensor};
}

template <class Values>
at::Tensor nf4_map(const Values& values) {
  return at::tensor(at::ArrayRef<float>(values.data(), values.size()), at::kFloat);
}

// The same characters as Python's json.dumps.
std::string nf4_state(const Nf4Tensor& tensor, Dtype dtype) {
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
bool within_a_step(const at::Tensor& found, const at::Tensor& expected, const at::Tensor& scales,
                   float spread) {
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

const Nf4Tensor& nf4_tensor(const WeightSource& weight) {
  return dynamic_cast<const Nf4Weight&>(weight).tensor();
}

class QuantiserToNf4 : public WeightQuantiser {
 public:
  QuantiserToNf4(const std::string& weight, const std::vector<int64_t>& shape, at::ScalarType type,
                 bool double_quant)
      : quantiser_(weight, shape), type_(type), double_quant_(double_quant) {}
  void add(const at::Tensor& values) override { quantiser_.add(values); }
  std::shared_ptr<const WeightSource> finish() override {
    return std::make_shared<Nf4Weight>(quantiser_.finish(double_quant_), type_);
  }

 private:
  Nf4Quantiser quantiser_;
  at::ScalarType type_;
  bool double_quant_;
};

class Nf4Format : public WeightFormat {
 public:
  const WeightFormatName& name() const override { return weight_format_names().front(); }

  std::optional<StoredQuantisation> read_config(const nlohmann::json& stored) const override {
    const auto read = read_bitsandbytes_config(stored);
    if (!read) return std::nullopt;
    return StoredQuantisation{this, {.double_quant = read->double_quant}, read->skip_modules};
  }
  nlohmann::ordered_json written_config(const WrittenQuantisation& written) const override {
    // null: what Transformers leaves out by itself.
    nlohmann::json skipped = written.of_base.is_object()
                                 ? written.of_base.value("llm_int8_skip_modules", nlohmann::json())
                                 : nlohmann::json();
    if (skipped.is_null() && !written.other_half.empty()) {
      skipped = written.dense;
      for (const std::string& module : written.other_half) skipped.push_back(module);
    }
    return {{"_load_in_4bit", true},
            {"_load_in_8bit", false},
            {"bnb_4bit_compute_dtype", torch_name(written.computed_in)},
            {"bnb_4bit_quant_storage", "uint8"},
            {"bnb_4bit_quant_type", "nf4"},
            {"bnb_4bit_use_double_quant", written.double_quant},
            {"llm_int8_enable_fp32_cpu_offload", false},
            {"llm_int8_has_fp16_weight", false},
            {"llm_int8_skip_modules", skipped},
            {"llm_int8_threshold", 6.0},
            {"load_in_4bit", true},
            {"load_in_8bit", false},
            {"quant_method", "bitsandbytes"}};
  }

  bool is_stored(const StoredTensors& tensors, const std::string& weight) const override {
    const auto found = tensors.find(weight);
    if (found != tensors.end() && found->second.dtype == Dtype::u8) return true;
    return std::ranges::any_of(nf4_companions(weight),
                               [&](const std::string& name) { return tensors.contains(name); });
  }
  WeightLayout layout_of(const StoredTensors& tensors, const std::string& weight, const std::vector<int64_t>&,
                         const WeightLayout&) const override {
    return layout(tensors.contains(weight + kNf4NestedScales));
  }
  std::vector<std::string> companions(const std::string& weight) const override {
    return nf4_companions(weight);
  }
  std::optional<StoredWeight> find(const StoredTensors& tensors, const std::string& weight,
                                   const std::vector<int64_t>& shape, const WeightLayout&,
                                   std::vector<std::string>& problems) const override {
    const auto found = find_stored_nf4(tensors, weight, shape, problems);
    if (!found) return std::nullopt;
    StoredWeight out{shape,
                     {as_numbers(found->codes, Dtype::u8), as_numbers(found->scales, found->scales.dtype)},
                     {reinterpret_cast<const char*>(&found->offset), sizeof found->offset}};
    if (found->nested_scales) out.parts.push_back(as_numbers(*found->nested_scales, Dtype::f32));
    return out;
  }
  std::shared_ptr<const WeightSource> open(const StoredWeight& stored, const std::vector<at::Tensor>& tensors,
                                           at::ScalarType type) const override {
    Nf4Tensor tensor{stored.shape, tensors.at(0), tensors.at(1), {}, 0.0f};
    if (tensors.size() > 2) tensor.nested_scales = tensors[2];
    return Nf4Weight(std::move(tensor), type).with_metadata(stored.metadata);
  }
  std::shared_ptr<const WeightSource> empty(const std::vector<int64_t>& shape, at::ScalarType type,
                                            const WeightLayout& layout, at::Device device) const override {
    return std::make_shared<Nf4Weight>(empty_nf4(shape, layout.double_quant, device), type);
  }

  WeightLayout layout(bool double_quant) const override { return {.double_quant = double_quant}; }
  int64_t block() const override { return kNf4Block; }
  std::unique_ptr<WeightQuantiser> quantiser(const std::string& weight, const std::vector<int64_t>& shape,
                                             at::ScalarType type, bool double_quant) const override {
    return std::make_unique<QuantiserToNf4>(weight, shape, type, double_quant);
  }

  std::vector<WrittenPart> written_parts(const WeightSource& weight, Dtype made_from) const override {
    static const at::Tensor map = nf4_map(kNf4Values), nested_map = nf4_map(dynamic_map(true));
    const Nf4Tensor& tensor = nf4_tensor(weight);
    std::vector<WrittenPart> parts{{"", Dtype::u8, {(tensor.numel() + 1) / 2, 1}, tensor.codes},
                                   nf4_part(kNf4Scales, tensor.scales),
                                   nf4_part(kNf4Map, map)};
    if (tensor.double_quantised()) {
      parts.push_back(nf4_part(kNf4NestedScales, tensor.nested_scales));
      parts.push_back(nf4_part(kNf4NestedMap, nested_map));
    }
    const std::string state = nf4_state(tensor, made_from);
    const at::Tensor bytes = at::empty({static_cast<int64_t>(state.size())}, at::kByte);
    std::memcpy(bytes.mutable_data_ptr(), state.data(), state.size());
    parts.push_back(nf4_part(kNf4State, bytes));
    return parts;
  }
  Comparison compared(std::shared_ptr<const WeightSource> weight) const override {
    const at::Tensor scales = scales_of(nf4_tensor(*weight));
    const Nf4Tensor& tensor = nf4_tensor(*weight);
    const float spread =
        tensor.double_quantised() ? (scales - tensor.offset).abs().max().item<float>() : 0.0f;
    return [weight = std::move(weight), scales, spread](int64_t first, const at::Tensor& made_from) {
      const int64_t count = made_from.numel();
      const at::Tensor own = scales.narrow(0, first / kNf4Block, (count + kNf4Block - 1) / kNf4Block);
      return within_a_step(dequantise_nf4(nf4_tensor(*weight), first, count, at::kFloat), made_from, own,
                           spread);
    };
  }
};

}  // namespace

const WeightFormat& nf4_format() {
  static const Nf4Format format;
  return format;
}

}  // namespace trainer
