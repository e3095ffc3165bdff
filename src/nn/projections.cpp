#include "nn/projections.h"

#include <numeric>

#include <ATen/ATen.h>

namespace trainer {

Projections::Projections(Module& owner, int64_t in_features, const std::vector<Output>& outputs,
                         const std::string& fused, bool has_bias)
    : fused_(fused) {
  const auto add_layer = [&](const std::string& name, int64_t size) {
    layers_.push_back(std::make_unique<Linear>(in_features, size, has_bias));
    owner.add(name, *layers_.back());
  };
  for (const Output& output : outputs) sizes_.push_back(output.size);
  if (!fused.empty()) {
    add_layer(fused, std::accumulate(sizes_.begin(), sizes_.end(), int64_t{0}));
    return;
  }
  for (const Output& output : outputs) add_layer(output.name, output.size);
}

std::vector<at::Tensor> Projections::forward(const LayerInput& x, const at::Tensor& row_keys,
                                             const ForwardContext& context) const {
  std::vector<const Linear*> layers;
  for (const auto& layer : layers_) layers.push_back(layer.get());
  std::vector<at::Tensor> out = Linear::forward_together(layers, x, row_keys, context);
  return fused_.empty() ? out : out[0].split_with_sizes(sizes_, -1);
}

}  // namespace trainer
