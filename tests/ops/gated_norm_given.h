// Inputs of the gated norm, and what it is by its definition.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "ops/gated_norm.h"
#include "support/reference.h"

namespace trainer {

struct GatedNormGiven {
  static constexpr double kEpsilon = 1e-6;

  GatedNormGiven(int64_t heads_, int64_t size, at::ScalarType type) : heads(heads_) {
    Random random(57);
    x = random.normal({2, 9, heads * size}, type);
    wide = random.normal({2, 9, heads * size + 3 * size}, type);
    weight = random.normal({size}, type);
    g = random.normal({2, 9, heads * size}, type);
  }
  // x, the gate and the weight. The gate is columns of a wider matrix, as projections give it.
  template <class Place>
  Tensors in(const Place& place) const {
    return {place(x), place(wide).narrow(2, weight.size(0), x.size(2)), place(weight)};
  }
  Tensors in() const {
    return in([](const at::Tensor& t) { return t; });
  }
  at::Tensor by_head(const at::Tensor& t) const { return t.unflatten(2, {heads, -1}); }
  // Of in(), which may be of another type.
  at::Tensor definition(const Tensors& t) const {
    const at::Tensor rows = by_head(t[0]);
    const at::Tensor normed = rows * (rows.square().mean(-1, true) + kEpsilon).rsqrt() * t[2];
    return (normed * at::silu(by_head(t[1]))).flatten(2);
  }

  // The operator's value and its gradients of in(), where `place` puts it.
  template <class Place>
  Tensors by_operator(const Place& place) const {
    Tensors leaves;
    for (const at::Tensor& t : in(place)) leaves.push_back(t.detach().set_requires_grad(true));
    const at::Tensor y = gated_norm(leaves[0], leaves[1], leaves[2], kEpsilon);
    Tensors all = torch::autograd::grad({y}, leaves, {place(g)});
    all.insert(all.begin(), y.detach());
    return all;
  }

  int64_t heads;
  at::Tensor x, wide, weight, g;
};

inline const std::vector<std::pair<int64_t, int64_t>> kHeadsOfGatedNorms{
    {4, 128}, {1, 16}, {3, 33}, {2, 520}};

}  // namespace trainer
