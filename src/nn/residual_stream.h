// The residual stream of a stack of layers: x, to which each part of each layer adds its output.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "trainer/nn/context.h"
#include "trainer/nn/layer_input.h"

#include "nn/norm.h"

namespace trainer {

// The last addend waits for the next norm, so that sum and norm are computed together.
class ResidualStream {
 public:
  explicit ResidualStream(at::Tensor x) : x_(std::move(x)) {}  // [..., size]

  // Adds `part`, of x's shape and type.
  void add(const at::Tensor& part) { add(part, {}, 0, 0.0); }
  // Adds dropout(part, row_keys, key, p) (dropout.h).
  void add(const at::Tensor& part, const at::Tensor& row_keys, uint64_t key, double p);

  // Returns the sum so far; differentiable, as is normed().
  at::Tensor sum();
  // Returns the norm of the sum; the sum itself if there is no norm.
  at::Tensor normed(const RmsNorm& norm);
  at::Tensor normed(const std::optional<RmsNorm>& norm) { return norm ? normed(*norm) : sum(); }
  // The same for a linear layer: as the context says, backward makes the norm again from the sum, which is
  // kept anyway.
  LayerInput input(const RmsNorm& norm, const ForwardContext& context);
  LayerInput input(const std::optional<RmsNorm>& norm, const ForwardContext& context) {
    return norm ? input(*norm, context) : LayerInput(sum());
  }

 private:
  at::Tensor x_;
  at::Tensor part_;  // not added yet; undefined: nothing waits
  at::Tensor row_keys_;
  uint64_t key_ = 0;
  double p_ = 0.0;
};

}  // namespace trainer
