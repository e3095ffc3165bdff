// What training and generation need of a model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>

#include "trainer/data/batching.h"
#include "trainer/nn/context.h"
#include "trainer/nn/module.h"
#include "trainer/nn/output_head.h"

namespace trainer {

// One batch of sequences being generated, with its key/value cache. Training has none.
class Generation {
 public:
  virtual ~Generation() = default;
  // What follows the prompts: fp32 logits [batch, vocab]. An encoder-decoder's answers begin with
  // `start_token`; a decoder has no use for it.
  virtual at::Tensor start(int64_t start_token) = 0;
  // Appends a token to each sequence, int64 [batch]; fp32 logits [batch, vocab] of what follows it.
  virtual at::Tensor next(const at::Tensor& tokens) = 0;
  // Goes on with these sequences, in this order: some may be left out, others taken several times.
  virtual void select(const std::vector<int64_t>& rows) = 0;
};

class Model : public Module {
 public:
  explicit Model(nlohmann::json config) : config_(std::move(config)) {}

  // Final hidden states of the positions that predict a token to learn: [n, hidden], as head() takes
  // them (OutputHead::states).
  virtual at::Tensor supervised_states(const MicroBatch& batch, const ForwardContext& context) const = 0;
  virtual const OutputHead& head() const = 0;

  // Sum of the token losses of the micro-batch (all of its supervised tokens).
  LossSum loss(const MicroBatch& batch, const ForwardContext& context) const {
    return head().loss(supervised_states(batch, context), batch.supervised_labels, context.label_smoothing,
                       context.count_correct);
  }

  // Of prompts, or of an encoder-decoder's sources: input_ids [batch, seq] int64, padded on the right,
  // input_lengths [batch] int64. The model must outlive it.
  virtual std::unique_ptr<Generation> generate(const at::Tensor& input_ids,
                                               const at::Tensor& input_lengths) const = 0;

  virtual bool encoder_decoder() const = 0;
  virtual int64_t num_blocks() const = 0;  // that can be recomputed
  // The tensors with a row for each token: the embedding and, where it is separate, the head.
  virtual std::vector<Parameter*> vocabulary() = 0;
  virtual int64_t vocab_size() const = 0;  // their rows
  // Gives a tied head a place of its own in the tree, lm_head.weight, with the embedding's values.
  virtual void untie_head() = 0;
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
