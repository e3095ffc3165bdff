// What training and generation need of a model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>

#include "trainer/data/batching.h"
#include "trainer/nn/context.h"
#include "trainer/nn/linear_cross_entropy.h"
#include "trainer/nn/module.h"

namespace trainer {

// One batch of sequences being generated, with its key/value cache. Training has none.
class Generation {
 public:
  virtual ~Generation() = default;
  // Appends tokens [batch, n] to the sequences; fp32 logits [batch, vocab] of what comes next.
  virtual at::Tensor next_logits(const at::Tensor& tokens) = 0;
};

class Model : public Module {
 public:
  explicit Model(nlohmann::json config) : config_(std::move(config)) {}

  // Final hidden states of the positions that predict a token to learn: [n, hidden], ready for the output
  // projection.
  virtual at::Tensor supervised_states(const MicroBatch& batch, const ForwardContext& context) const = 0;
  // [vocab, hidden] in the type of the computation
  virtual at::Tensor output_weight() const = 0;

  // Sum of the token losses of the micro-batch (all of its supervised tokens).
  LossSum loss(const MicroBatch& batch, const ForwardContext& context) const {
    return linear_cross_entropy(supervised_states(batch, context), output_weight(), batch.supervised_labels,
                                context.label_smoothing, context.count_correct);
  }

  // Encoder-decoder: encodes the sources; the first next_logits gets the start token. Decoder: sources are
  // not used; the first next_logits gets the prompt. input_ids [batch, seq] int64, input_lengths [batch]
  // int64.
  virtual std::unique_ptr<Generation> generate(const at::Tensor& input_ids,
                                               const at::Tensor& input_lengths) const = 0;

  virtual bool encoder_decoder() const = 0;
  virtual int64_t num_blocks() const = 0;  // that can be recomputed
  virtual int64_t vocab_size() const = 0;  // rows of the embedding
  virtual std::vector<std::string> default_lora_targets() const = 0;
  virtual CollateOptions collate_options() const = 0;
  // Groups of parameter names that are one tensor (tied embeddings): the first is the parameter, the others
  // its aliases.
  virtual std::vector<std::string> tied_names() const = 0;
  // The model's own dropout rate, and another one in its place.
  virtual bool has_dropout() const { return false; }
  virtual double dropout() const { return 0.0; }
  virtual void set_dropout(double) {}

  // The type that it computes in; trained parameters may be kept in a wider one.
  at::ScalarType dtype() const { return dtype_; }
  void set_dtype(at::ScalarType dtype) { dtype_ = dtype; }

  const nlohmann::json& config() const { return config_; }
  std::string model_type() const { return config_.at("model_type"); }

 private:
  nlohmann::json config_;
  at::ScalarType dtype_ = at::kFloat;
};

}  // namespace trainer
