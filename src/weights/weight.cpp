#include "trainer/weights/weight.h"

#include <ATen/ATen.h>

namespace trainer {

std::vector<at::Tensor> Weight::tensors() const {
  return source_ ? source_->tensors() : std::vector<at::Tensor>{tensor_};
}

int64_t Weight::nbytes() const {
  int64_t sum = 0;
  for (const at::Tensor& tensor : tensors()) sum += static_cast<int64_t>(tensor.nbytes());
  return sum;
}

// A tensor on a mapped file has memory that LibTorch cannot resize.
bool Weight::is_mapped() const { return !source_ && !tensor_.storage().resizable(); }

Weight Weight::with_storage(const std::vector<at::Tensor>& copies) const {
  return source_ ? Weight(source_->with_storage(copies)) : Weight(copies.at(0));
}

void Weight::set_of_other_rank() {
  set_offloaded();
  offloaded_->of_other_rank = true;
}

Weight Weight::resident() const { return offloaded_ && offloaded_->copy ? *offloaded_->copy : *this; }

const at::Tensor& Weight::tensor() const {
  TORCH_CHECK(!source_, "a weight of shape ", sizes(), " is not kept as a plain tensor, which this needs; ",
              "load the model without quantisation");
  return tensor_;
}

void Weight::set_requires_grad(bool trained) {
  if (!source_ || trained) tensor().set_requires_grad(trained);
}

at::Tensor Weight::materialize(at::ScalarType type) const {
  if (source_) return source_->rows(0, size(0), type);
  return tensor_.scalar_type() == type ? tensor_ : tensor_.to(type);
}

at::Tensor Weight::rows(int64_t first, int64_t count, at::ScalarType type) const {
  return source_ ? source_->rows(first, count, type) : tensor_.narrow(0, first, count).to(type);
}

at::Tensor Weight::look_up(const at::Tensor& ids, int64_t padding_idx, at::ScalarType type) const {
  return source_ ? source_->look_up(ids, type) : at::embedding(tensor_, ids, padding_idx).to(type);
}

at::Tensor Weight::copy(at::ScalarType type) const {
  return source_ ? materialize(type) : tensor_.detach().to(type, /*non_blocking=*/false, /*copy=*/true);
}

}  // namespace trainer
