// The values of a parameter, in whatever form they are kept.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trainer {

class WeightFormat;  // weights/weight_format.h

// A frozen weight that is not a plain tensor, for example a quantised one. It never changes. Each call
// returns new memory, which the caller drops after use.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  virtual const std::vector<int64_t>& shape() const = 0;          // [rows, columns]
  virtual at::ScalarType scalar_type() const = 0;                 // the type of its values
  virtual const WeightFormat* format() const { return nullptr; }  // its format in files; null: none
  // Returns the rows first, first + 1, ...: [count, columns] in `type`.
  virtual at::Tensor rows(int64_t first, int64_t count, at::ScalarType type) const = 0;
  // Returns the rows `ids` [...] int64: [..., columns] in `type`.
  virtual at::Tensor look_up(const at::Tensor& ids, at::ScalarType type) const = 0;
  // The tensors that it keeps. They count as the model's memory and move with it to another device, in place.
  virtual std::vector<at::Tensor> tensors() const = 0;
  // Returns the same weight kept in copies of these tensors, which are in the same order.
  virtual std::shared_ptr<const WeightSource> with_storage(const std::vector<at::Tensor>& copies) const = 0;
  // Returns its data besides the tensors, as bytes, and the same weight with another one's data.
  virtual std::string metadata() const { return ""; }
  virtual std::shared_ptr<const WeightSource> with_metadata(const std::string& /*metadata*/) const {
    return with_storage(tensors());
  }
};

class Weight;

// The state that all handles of an offloaded or sharded weight share. Its tensors are outside of the device's
// memory, or on another rank.
struct OffloadedWeight {
  // The copy on the device, while its block runs (weights/block_store.h); else null.
  std::shared_ptr<const Weight> copy;
  // Takes the gradient of a copy; set if the weight is trained.
  std::function<void(const at::Tensor& gradient)> take_gradient;
  bool of_other_rank = false;  // its own tensors are on meta
};

// A handle, cheap to copy. There are three kinds today. Two are plain tensors: dense, in memory of its own,
// and mapped, in the model's file. The third is a WeightSource. All may be offloaded.
//
// Layers never keep the result of materialize() or rows() for backward: they keep the Weight and ask again.
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
  std::vector<at::Tensor> tensors() const;  // the tensors that hold its values
  int64_t nbytes() const;                   // size of these tensors

  bool is_tensor() const { return source_ == nullptr; }
  const WeightSource* source() const { return source_.get(); }  // null: it is a tensor
  bool is_mapped() const;
  // Returns the same weight kept in copies of its tensors, which are in the order of tensors().
  Weight with_storage(const std::vector<at::Tensor>& copies) const;
  // Its data besides the tensors; a weight of another rank takes it from there.
  std::string metadata() const { return source_ ? source_->metadata() : ""; }
  void set_metadata(const std::string& metadata) {
    if (source_) source_ = source_->with_metadata(metadata);
  }
  // Marks its tensors as offloaded. To be called before handles are copied.
  void set_offloaded() { offloaded_ = std::make_shared<OffloadedWeight>(); }
  // The same for a weight that another rank has (parallel.shard: all). Its tensors are on meta.
  void set_of_other_rank();
  bool is_of_other_rank() const { return offloaded_ && offloaded_->of_other_rank; }
  const std::shared_ptr<OffloadedWeight>& offloaded() const { return offloaded_; }  // null: it is neither
  // Returns what layers multiply with: the weight itself, or while its block runs, its copy on the device.
  Weight resident() const;
  // The tensor itself, a leaf of autograd if it is trained. An error if there is a source instead.
  const at::Tensor& tensor() const;

  bool requires_grad() const { return tensor_.defined() && tensor_.requires_grad(); }
  void set_requires_grad(bool trained);

  // Returns the whole weight in `type`, for the moment of use. A tensor of that type is returned as it is;
  // otherwise the result is new, and differentiable if the weight is trained.
  at::Tensor materialize(at::ScalarType type) const;
  // The same for a panel of rows, and for the rows `ids` [...]. The row `padding_idx` gets no gradient.
  at::Tensor rows(int64_t first, int64_t count, at::ScalarType type) const;
  at::Tensor look_up(const at::Tensor& ids, int64_t padding_idx, at::ScalarType type) const;
  // Returns a copy in memory that nothing else refers to; not differentiable.
  at::Tensor copy(at::ScalarType type) const;

 private:
  at::Tensor tensor_;
  std::shared_ptr<const WeightSource> source_;
  std::shared_ptr<OffloadedWeight> offloaded_;
};

}  // namespace trainer
