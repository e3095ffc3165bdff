// A table of token embeddings, with or without a LoRA adapter.
#pragma once

#include <memory>
#include <optional>

#include <ATen/core/Tensor.h>

#include "trainer/nn/lora_options.h"
#include "trainer/weights/module.h"

namespace trainer {

// With an adapter, the result is row + scale * B A[:, id], or DoRA with a magnitude for each column, in fp32
// (PEFT's lora.Embedding). Embeddings have no adapter dropout.
class Embedding : public Module {
 public:
  // The row `padding_idx` gets no gradient from look-ups (as in torch.nn.Embedding); -1: no such row.
  Embedding(int64_t rows, int64_t size, int64_t padding_idx = -1);
  // Looks up in the table of `shared`, which must outlive it, until own_weight() is called. It may have
  // another row without gradients.
  explicit Embedding(const Embedding* shared, std::optional<int64_t> padding_idx = std::nullopt);

  // Looks up ids [...] int64; returns [..., size] in `type`.
  at::Tensor forward(const at::Tensor& ids, at::ScalarType type) const;

  // The table that it looks up in. own_weight() gives it a table of its own with the same values, as the
  // parameter "weight".
  const Parameter& table() const { return shared_ != nullptr ? *shared_ : weight; }
  void own_weight();

  // Adds the parameters lora_embedding_A [r, rows], lora_embedding_B [size, r] and, for DoRA,
  // lora_magnitude_vector [size]. They have no values yet.
  void add_lora(const LoraOptions& options);
  // Returns the column norms of W + scale * (B A)^T, fp32 [size].
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

// Returns what Transformers multiplies embeddings of this type with where it keeps the factor in that type
// (Gemma).
float rounded_factor(double factor, at::ScalarType type);

}  // namespace trainer
