// A table of token embeddings, with or without a LoRA adapter.
#pragma once

#include <memory>
#include <optional>

#include <ATen/core/Tensor.h>

#include "trainer/nn/lora_options.h"
#include "trainer/nn/module.h"

namespace trainer {

// With an adapter: row + scale * B A[:, id], or DoRA with a magnitude for each column, in fp32 (PEFT's
// lora.Embedding). Dropout does not reach an embedding.
class Embedding : public Module {
 public:
  // The row `padding_idx` gets no gradient from where it is looked up (torch.nn.Embedding); -1: none is so.
  Embedding(int64_t rows, int64_t size, int64_t padding_idx = -1);
  // Looks up in another's table, which outlives it, until it gets one of its own (own_weight).
  explicit Embedding(const Embedding* shared);

  // ids [...] int64 -> [..., size] in `type`
  at::Tensor forward(const at::Tensor& ids, at::ScalarType type) const;

  // The table it looks up in. own_weight: from now on one of its own, with the same values, as the parameter
  // "weight".
  const Parameter& table() const { return shared_ != nullptr ? *shared_ : weight; }
  void own_weight();

  // Adds lora_embedding_A [r, rows], lora_embedding_B [size, r] and, for DoRA, lora_magnitude_vector [size]
  // as parameters (without values yet).
  void add_lora(const LoraOptions& options);
  // Column norms of W + scale * (B A)^T, fp32 [size].
  at::Tensor dora_norm() const;

  Parameter weight;  // [rows, size]

  struct Lora {
    LoraOptions options;
    Parameter a, b;
    std::optional<Parameter> magnitude;
  };
  std::unique_ptr<Lora> lora;

 private:
  const Parameter* shared_ = nullptr;
  int64_t padding_idx_;
};

}  // namespace trainer
