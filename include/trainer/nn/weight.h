// The values of a parameter, whatever they are kept as.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trainer {

// Where a frozen weight comes from when it is not one plain tensor: one that is quantised, for example. It
// never changes, and what it makes is new memory at each call, which its user drops after use.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  virtual const std::vector<int64_t>& shape() const = 0;  // [rows, columns]
  virtual at::ScalarType scalar_type() const = 0;         // of the values that it stands for
  // Rows first, first + 1, ...: [count, columns] in `type`
  virtual at::Tensor rows(int64_t first, int64_t count, at::ScalarType type) const = 0;
  // The rows `ids` [...] int64: [..., columns] in `type`
  virtual at::Tensor look_up(const at::Tensor& ids, at::ScalarType type) const = 0;
  // What it keeps. Counted as memory of the model, and moved with it to another device, in place.
  virtual std::vector<at::Tensor> tensors() const = 0;
};

// A handle, cheap to copy. Two kinds today are plain tensors: dense, in memory of its own, and mapped, which
// lies in the model's file. The third is a WeightSource.
//
// Layers never keep for backward what materialize() or rows() made: they keep the Weight and ask it again.
class Weight {
 public:
  Weight() = default;  // no values yet
  Weight(at::Tensor tensor) : tensor_(std::move(tensor)) {}
  explicit Weight(std::shared_ptr<const WeightSource> source) : source_(std::move(source)) {}

  bool defined() const { return source_ != nullptr || tensor_.defined(); }
  at::IntArrayRef sizes() const { return source_ ? at::IntArrayRef(source_->shape()) : tensor_.sizes(); }
  int64_t size(size_t dimension) const { return sizes()[dimension]; }
  at::ScalarType scalar_type() const { return source_ ? source_->scalar_type() : tensor_.scalar_type(); }
  at::Device device() const { return tensors().at(0).device(); }
  std::vector<at::Tensor> tensors() const;  // what it is kept in
  int64_t nbytes() const;                   // of these

  bool is_tensor() const { return source_ == nullptr; }
  bool is_mapped() const;
  // The tensor itself, a leaf of autograd when it is trained. An error when there is a source instead.
  const at::Tensor& tensor() const;

  bool requires_grad() const { return tensor_.defined() && tensor_.requires_grad(); }
  void set_requires_grad(bool trained);

  // The whole weight in `type`, for the moment of use. A tensor of that type is itself; otherwise the result
  // is new, and differentiable when the weight is trained.
  at::Tensor materialize(at::ScalarType type) const;
  // The same for a panel of rows, and for the rows `ids` [...]. The row `padding_idx` gets no gradient.
  at::Tensor rows(int64_t first, int64_t count, at::ScalarType type) const;
  at::Tensor look_up(const at::Tensor& ids, int64_t padding_idx, at::ScalarType type) const;
  // In memory that nothing else refers to; not differentiable.
  at::Tensor copy(at::ScalarType type) const;

 private:
  at::Tensor tensor_;
  std::shared_ptr<const WeightSource> source_;
};

}  // namespace trainer
