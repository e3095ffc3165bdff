// A linear layer, with or without a LoRA adapter.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/nn/context.h"
#include "trainer/nn/module.h"

namespace trainer {

struct Projection;  // src/nn/linear_group.h

struct LoraOptions {
  int64_t r = 8;
  double scale = 2.0;  // lora_alpha / r, rsLoRA: lora_alpha / sqrt(r)
  double dropout = 0.0;
};

// y = x W^T + b, and with an adapter + B(A(dropout(x))) * scale (Hu et al. 2021; PEFT's lora.Linear). A and B
// are kept in fp32, and used in it or in the type of x, whichever the products are made in (nn/matmul.h).
class Linear : public Module {
 public:
  Linear(int64_t in_features, int64_t out_features, bool has_bias);

  // x [..., in_features] -> [..., out_features]. row_keys [...] (one a row) key the adapter's dropout.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& row_keys, const ForwardContext& context) const;

  // Layers on the same input: x is read once, and its gradient summed before it is rounded.
  static std::vector<at::Tensor> forward_together(const std::vector<const Linear*>& layers,
                                                  const at::Tensor& x, const at::Tensor& row_keys,
                                                  const ForwardContext& context);

  // Adds lora_A.weight [r, in_features] and lora_B.weight [out_features, r] as parameters (without values
  // yet).
  void add_lora(const LoraOptions& options);

  Parameter weight;  // [out_features, in_features]
  std::optional<Parameter> bias;

  struct Lora {
    struct Matrix : Module {
      Matrix(int64_t rows, int64_t cols) : weight({rows, cols}) { add("weight", weight); }
      Parameter weight;
    };
    LoraOptions options;
    Matrix a, b;
  };
  std::unique_ptr<Lora> lora;

 private:
  Projection projection(const at::Tensor& x, const ForwardContext& context) const;
};

}  // namespace trainer
