// A linear layer, with or without a LoRA adapter.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/nn/context.h"
#include "trainer/nn/layer_input.h"
#include "trainer/nn/lora_options.h"
#include "trainer/weights/module.h"

namespace trainer {

struct Projection;  // src/nn/linear_group.h

// y = x W^T + b. A LoRA adapter adds B(A(dropout(x))) * scale (Hu et al. 2021; PEFT's lora.Linear); for DoRA
// see nn/dora_linear.h. A and B are kept in fp32. They are multiplied in fp32 or in the type of x, whichever
// the products use (ops/matmul.h).
class Linear : public Module {
 public:
  Linear(int64_t in_features, int64_t out_features, bool has_bias);

  // Takes x [..., in_features], returns [..., out_features]. row_keys [...] (one per row) are the keys of the
  // adapter's dropout.
  at::Tensor forward(const LayerInput& x, const at::Tensor& row_keys, const ForwardContext& context) const;

  // Runs several layers on the same input; returns their outputs in the order of `layers`. x is read once,
  // and its gradients are summed before rounding.
  static std::vector<at::Tensor> forward_together(const std::vector<const Linear*>& layers,
                                                  const LayerInput& x, const at::Tensor& row_keys,
                                                  const ForwardContext& context);

  // Adds the parameters lora_A.weight [r, in_features], lora_B.weight [out_features, r] and, depending on the
  // options, lora_magnitude_vector and lora_B.bias [out_features]. They have no values yet.
  void add_lora(const LoraOptions& options);

  // Returns the row norms of W + scale * B A, fp32 [out_features]; for DoRA.
  at::Tensor dora_norm() const;

  Parameter weight;  // [out_features, in_features]
  std::optional<Parameter> bias;

  struct Lora {
    struct Matrix : Module {
      Matrix(int64_t rows, int64_t cols) : weight({rows, cols}) { add("weight", weight); }
      Parameter weight;
      std::optional<Parameter> bias;
    };
    LoraOptions options;
    Matrix a, b;
    std::optional<Parameter> magnitude;
  };
  std::unique_ptr<Lora> lora;

 private:
  bool is_dora() const { return lora && lora->magnitude; }
  Projection projection(const at::Tensor& x, const ForwardContext& context) const;
  at::Tensor dora_forward(const at::Tensor& x, const at::Tensor& row_keys,
                          const ForwardContext& context) const;
};

}  // namespace trainer
