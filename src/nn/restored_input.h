// The input of a linear layer as its Function keeps it for backward.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/nn/layer_input.h"

namespace trainer {

struct Projection;  // nn/linear_group.h

// x itself, or the tensors that make it again, or nothing if no gradient needs it.
class RestoredInput {
 public:
  RestoredInput() = default;
  RestoredInput(const LayerInput& in, const std::vector<Projection>& projections);

  // Appends to the tensors that a Function saves, once; x [..., in].
  void save(const at::Tensor& x, std::vector<at::Tensor>& saved);
  // Returns x [rows, in] from what the Function saved.
  at::Tensor restore(const std::vector<at::Tensor>& saved) const;

 private:
  bool needed_ = true;
  LayerInput::Make make_;
  std::vector<at::Tensor> from_;
  size_t first_ = 0, count_ = 0;  // where save() put them
};

}  // namespace trainer
