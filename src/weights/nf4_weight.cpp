#include "weights/nf4_weight.h"

#include <cstring>
#include <utility>

#include <ATen/ATen.h>

#include "ops/nf4.h"

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

}  // namespace trainer
