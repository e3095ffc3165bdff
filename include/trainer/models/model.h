// The interface of a model for training and generation.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>

#include "trainer/data/batching.h"
#include "trainer/nn/context.h"
#include "trainer/nn/output_head.h"
#include "trainer/weights/module.h"

namespace trainer {

// A batch of sequences being generated, with its key/value cache. Training does not use it.
class Generation {
 public:
  virtual ~Generation() = default;
  // Adds prompts, or an encoder-decoder's sources, in slots 0, 1, ..., behind the sequences that there are:
  // padded or packed. Labels are not used. Returns the fp32 logits [batch, vocab] of the token after each
  // prompt; an undefined tensor for sources, whose answers begin with the start token in the next step.
  virtual at::Tensor add(const MicroBatch& prompts) = 0;
  // Appends a token to each sequence, int64 [batch]; returns the fp32 logits [batch, vocab] of the next
  // token.
  virtual at::Tensor next(const at::Tensor& tokens) = 0;
  // Continues with these sequences, in this order; a sequence may be left out or repeated.
  virtual void select(const std::vector<int64_t>& rows) = 0;
};

class Model : public Module {
 public:
  explicit Model(nlohmann::json config) : config_(std::move(config)) {}

  // Returns the final hidden states of the positions that predict a supervised token: [n, hidden], as head()
  // takes them (OutputHead::states).
  virtual at::Tensor supervised_states(const MicroBatch& batch, const ForwardContext& context) const = 0;
  virtual const OutputHead& head() const = 0;

  // Returns the sum of the token losses of the micro-batch (all of its supervised tokens), each times its
  // weight. The options soft_cap and chunk_rows are the model's own.
  LossSum loss(const MicroBatch& batch, const ForwardContext& context, LossOptions options = {}) const {
    options.chunk_rows = chunk_rows(context);
    options.teacher.ids = batch.teacher_ids;
    options.teacher.log_probs = batch.teacher_log_probs;
    return head().loss(supervised_states(batch, context), batch.supervised_labels, options,
                       batch.supervised_weights);
  }

  // Returns the rows of a chunk of logits (LossOptions). With 1,024 the products outweigh reading the weight;
  // where memory matters more, there are fewer.
  int64_t chunk_rows(const ForwardContext& context) const {
    return context.recompute_blocks >= num_blocks() ? 1 : context.light ? 512 : 1024;
  }

  // Returns a generation without sequences. The model must outlive it.
  virtual std::unique_ptr<Generation> generate(at::Device device) const = 0;

  virtual bool encoder_decoder() const = 0;
  virtual int64_t num_blocks() const = 0;     // blocks that can be recomputed
  virtual std::vector<Module*> blocks() = 0;  // these, in the order in which they run
  // The tensors with a row for each token: the embedding and, if it is separate, the head.
  virtual std::vector<Parameter*> vocabulary() = 0;
  virtual int64_t vocab_size() const = 0;  // rows of these tensors
  // Gives a tied head a parameter of its own, lm_head.weight, with the embedding's values.
  virtual void untie_head() = 0;
  // Lets a tied head use the adapter of the embedding, so that they stay one matrix. Returns false if this is
  // not supported.
  virtual bool share_adapter_with_head() { return false; }
  virtual std::vector<std::string> default_lora_targets() const = 0;
  virtual CollateOptions collate_options() const = 0;
  // The names of tied embeddings, which are one tensor: the first is the parameter, the others are aliases.
  virtual std::vector<std::string> tied_names() const = 0;
  // The model's own dropout rate; set_dropout() replaces it.
  virtual bool has_dropout() const { return false; }
  virtual double dropout() const { return 0.0; }
  virtual void set_dropout(double) {}

  // Returns whether samples can be packed.
  virtual bool packs() const { return true; }
  // Returns whether attention of packed samples of several lengths is one kernel on a GPU, so that packing is
  // not slower there than padding.
  virtual bool packs_on_gpu() const { return false; }
  // Returns whether a pass over packed samples there takes their lengths from the device alone, so that one
  // recorded pass serves any (CollateOptions::few_forms).
  virtual bool packs_by_starts(at::Device) const { return false; }

  // Called with each block before it runs, also when it runs again in backward; may be empty. It serves
  // callers that keep the weights of only a few blocks in memory at a time. For what it returns see
  // EnterBlock.
  std::function<std::shared_ptr<void>(const Module& block, BlockPass pass)> around_block;
  // Called when this rank has run all blocks of its share of a work that all ranks do, also when it failed;
  // may be empty. It returns when the others have, too: until then they may need weights of this rank.
  std::function<void()> after_share;

  std::shared_ptr<void> enter(const Module& block, BlockPass pass = BlockPass::forward) const {
    return around_block ? around_block(block, pass) : nullptr;
  }
  // around_block of one block. The model and the block must outlive the result.
  EnterBlock entering(const Module& block) const {
    return [this, &block](BlockPass pass) { return enter(block, pass); };
  }

  // The type that it computes in; trained parameters may be kept in a wider type.
  at::ScalarType dtype() const { return dtype_; }
  void set_dtype(at::ScalarType dtype) { dtype_ = dtype; }

  const nlohmann::json& config() const { return config_; }
  std::string model_type() const { return config_.at("model_type"); }

 private:
  nlohmann::json config_;
  at::ScalarType dtype_ = at::kFloat;
};

// Returns the embedded inputs of a batch, in training with the noise that ForwardContext::embedding_noise
// asks for. row_keys: of its tokens (src/ops/dropout.h).
at::Tensor noisy(const at::Tensor& embedded, const MicroBatch& batch, const at::Tensor& row_keys,
                 const ForwardContext& context);

// Gives the embedding, and a separate head, `rows` rows (at least as many as they have). New rows are the
// mean of the old ones, as in Transformers' resize_token_embeddings but without its random deviations from
// the mean. Throws ConfigError if one of them has an adapter.
void resize_vocabulary(Model& model, int64_t rows);

}  // namespace trainer
