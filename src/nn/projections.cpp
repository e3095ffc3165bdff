#include "nn/projections.h"

#include <numeric>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "device/target_device.h"
#include "ops/side_by_side.h"

namespace trainer {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The columns of a fused layer's result. Gradients that lie side by side are one matrix already, which
// LibTorch's own split would copy.
struct SplitColumns : torch::autograd::Function<SplitColumns> {
  static variable_list forward(AutogradContext*, const at::Tensor& x, const std::vector<int64_t>& sizes) {
    const at::AutoDispatchBelowADInplaceOrView plain;  // the outputs are not views to autograd
    return x.split_with_sizes(sizes, -1);
  }
  static variable_list backward(AutogradContext*, variable_list grads) {
    if (!side_by_side(grads)) return {at::cat(grads, -1), at::Tensor()};
    std::vector<int64_t> shape = grads[0].sizes().vec();
    for (size_t i = 1; i < grads.size(); i++) shape.back() += grads[i].size(-1);
    return {grads[0].as_strided(shape, grads[0].strides()), at::Tensor()};
  }
};

}  // namespace

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
  if (fused_.empty()) return out;
  if (at::GradMode::is_enabled() && runs_on_gpu(out[0].device())) return SplitColumns::apply(out[0], sizes_);
  return out[0].split_with_sizes(sizes_, -1);
}

}  // namespace trainer
