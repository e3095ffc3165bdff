// Several projections of one input, whether a model's file has one layer for each or one fused layer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/nn/linear.h"

namespace trainer {

// Queries, keys and values, or gate and up. Adapters, formats of weights and files see the layers as they
// are: the adapter of a fused layer is one A and one B for all of its outputs, as in PEFT.
class Projections {
 public:
  struct Output {
    std::string name;
    int64_t size;
  };
  // Adds the layers to `owner`: one for each output under its name or, if `fused` is not empty, one of that
  // name, whose rows are the outputs' in this order.
  Projections(Module& owner, int64_t in_features, const std::vector<Output>& outputs,
              const std::string& fused, bool has_bias);

  // Takes x [..., in_features], returns [..., size] for each output: views of one tensor if they are fused.
  // row_keys: as in Linear::forward.
  std::vector<at::Tensor> forward(const LayerInput& x, const at::Tensor& row_keys,
                                  const ForwardContext& context) const;

  // Returns the name of the layer that computes this output.
  std::string layer_of(const std::string& output) const { return fused_.empty() ? output : fused_; }

 private:
  std::string fused_;
  std::vector<int64_t> sizes_;  // last dimension of each output
  std::vector<std::unique_ptr<Linear>> layers_;
};

}  // namespace trainer
