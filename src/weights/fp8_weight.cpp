// FP8: the row of weight_formats() and a frozen weight that is kept so.
#include "weights/fp8_weight.h"

#include <cstring>

#include <ATen/ATen.h>

#include "trainer/base/strings.h"

#include "formats/stored_fp8.h"
#include "weights/fp8_products.h"
#include "weights/weight_format.h"

namespace trainer {

at::Tensor Fp8Weight::look_up(const at::Tensor& ids, at::ScalarType type) const {
  return at::embedding(rows(0, tensor_.rows(), type), ids);
}

std::shared_ptr<const WeightSource> Fp8Weight::with_storage(const std::vector<at::Tensor>& copies) const {
  return std::make_shared<Fp8Weight>(Fp8Tensor{tensor_.shape, tensor_.block, copies.at(0), copies.at(1)},
                                     type_);
}

std::string Fp8Weight::metadata() const {
  return {reinterpret_cast<const char*>(tensor_.block.data()), sizeof tensor_.block};
}

std::shared_ptr<const WeightSource> Fp8Weight::with_metadata(const std::string& metadata) const {
  Fp8Tensor tensor = tensor_;
  TORCH_CHECK(metadata.size() == sizeof tensor.block, "not the metadata of an FP8 weight");
  std::memcpy(tensor.block.data(), metadata.data(), metadata.size());
  return std::make_shared<Fp8Weight>(std::move(tensor), type_);
}

namespace {

const Fp8Tensor& fp8_tensor(const WeightSource& weight) {
  return dynamic_cast<const Fp8Weight&>(weight).tensor();
}

// The bytes of a part as one row of numbers of this type.
TensorView fp8_part(const TensorView& view, Dtype dtype) {
  return {dtype, {static_cast<int64_t>(view.nbytes / dtype_size(dtype))}, view.data, view.nbytes};
}

class QuantiserToFp8 : public WeightQuantiser {
 public:
  QuantiserToFp8(const std::string& weight, const std::vector<int64_t>& shape, at::ScalarType type)
      : quantiser_(weight, shape), type_(type) {}
  void add(const at::Tensor& values) override { quantiser_.add(values); }
  std::shared_ptr<const WeightSource> finish() override {
    return std::make_shared<Fp8Weight>(quantiser_.finish(), type_);
  }

 private:
  Fp8Quantiser quantiser_;
  at::ScalarType type_;
};

class Fp8Format : public WeightFormat {
 public:
  const WeightFormatName& name() const override { return weight_format_names().at(1); }

  std::optional<StoredQuantisation> read_config(const nlohmann::json& stored) const override {
    const auto read = read_fp8_config(stored);
    if (!read) return std::nullopt;
    return StoredQuantisation{this, {.block = read->block}, read->skip_modules};
  }
  nlohmann::ordered_json written_config(const WrittenQuantisation& written) const override {
    std::vector<std::string> ignored = written.dense;
    for (const std::string& module : written.other_half) ignored.push_back(concat("re:", module, "\\..*"));
    return compressed_tensors_config(ignored);
  }

  bool is_stored(const StoredTensors& tensors, const std::string& weight) const override {
    return is_stored_fp8(tensors, weight);
  }
  WeightLayout layout_of(const StoredTensors& tensors, const std::string& weight,
                         const std::vector<int64_t>& shape, const WeightLayout& usual) const override {
    std::vector<std::string> problems;  // loading tells them
    const auto found = find_stored_fp8(tensors, weight, shape, usual.block, problems);
    return found ? WeightLayout{.block = found->block} : usual;
  }
  std::vector<std::string> companions(const std::string& weight) const override {
    return fp8_companions(weight);
  }
  std::optional<StoredWeight> find(const StoredTensors& tensors, const std::string& weight,
                                   const std::vector<int64_t>& shape, const WeightLayout& usual,
                                   std::vector<std::string>& problems) const override {
    const auto found = find_stored_fp8(tensors, weight, shape, usual.block, problems);
    if (!found) return std::nullopt;
    return StoredWeight{shape,
                        {fp8_part(found->codes, Dtype::u8), fp8_part(found->scales, found->scales.dtype)},
                        {reinterpret_cast<const char*>(found->block.data()), sizeof found->block},
                        Dtype::f32};
  }
  std::shared_ptr<const WeightSource> open(const StoredWeight& stored, const std::vector<at::Tensor>& tensors,
                                           at::ScalarType type) const override {
    const Fp8Tensor tensor{stored.shape, {}, tensors.at(0), tensors.at(1)};
    return Fp8Weight(tensor, type).with_metadata(stored.metadata);
  }
  std::shared_ptr<const WeightSource> empty(const std::vector<int64_t>& shape, at::ScalarType type,
                                            const WeightLayout& layout, at::Device device) const override {
    return std::make_shared<Fp8Weight>(empty_fp8(shape, layout.block, device), type);
  }

  WeightLayout layout(bool) const override { return {.block = kFp8Row}; }
  int64_t block() const override { return 1; }
  std::unique_ptr<WeightQuantiser> quantiser(const std::string& weight, const std::vector<int64_t>& shape,
                                             at::ScalarType type, bool) const override {
    return std::make_unique<QuantiserToFp8>(weight, shape, type);
  }

  // compressed-tensors has one kind of scales for all weights; that of the whole weight is every row's.
  bool is_written_as_is(const WeightSource& weight) const override {
    const Fp8Tensor& tensor = fp8_tensor(weight);
    return tensor.block_columns() == tensor.columns() &&
           (tensor.block_rows() == 1 || tensor.block_rows() == tensor.rows());
  }
  std::vector<WrittenPart> written_parts(const WeightSource& weight, Dtype) const override {
    const Fp8Tensor& tensor = fp8_tensor(weight);
    const at::Tensor scales = tensor.scales.view({-1, 1}).expand({tensor.rows(), 1}).contiguous();
    return {{"", Dtype::f8_e4m3, tensor.shape, tensor.codes},
            {kFp8Scales, Dtype::f32, {tensor.rows(), 1}, scales}};
  }
  // Half a step is 2^-4 of a value, or 2^-10 of the scale for the smallest; and the type rounds.
  Comparison compared(std::shared_ptr<const WeightSource> weight) const override {
    return [weight = std::move(weight)](int64_t first, const at::Tensor& made_from) {
      constexpr double kHalfStep = 0.0625, kSmallest = 0x1p-10, kRounding = 0.004;
      const Fp8Tensor& tensor = fp8_tensor(*weight);
      const int64_t columns = tensor.columns(), row = first / columns, rows = made_from.numel() / columns;
      const at::Tensor wanted = made_from.view({rows, columns});
      const at::Tensor scale = tensor.scales.expand({tensor.rows()}).narrow(0, row, rows).unsqueeze(1);
      const at::Tensor bound = wanted.abs() * (kHalfStep + kRounding) + scale * (kSmallest * (1 + kRounding));
      return (widen_fp8(tensor, row, rows, at::kFloat) - wanted).abs().le(bound).all().item<bool>();
    };
  }

  std::string said_on(at::Device device) const override {
    if (multiplies_fp8(device)) return "";
    return concat(
        "weights in FP8 are widened when they are multiplied on ", device.is_cuda() ? "the GPU" : "the CPU",
        ": they take half the memory of bf16, and steps take somewhat longer (docs/quantization.md)");
  }
};

}  // namespace

const WeightFormat& fp8_format() {
  static const Fp8Format format;
  return format;
}

}  // namespace trainer
