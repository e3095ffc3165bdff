// Tested against transformers, models/t5/modeling_t5.py, and sentence-transformers' mean pooling.
#include "models/t5_encoder.h"

#include <ATen/ATen.h>

#include "trainer/base/error.h"
#include "trainer/formats/model_directory.h"

#include "nn/score_head.h"
#include "ops/dropout.h"

namespace trainer {

T5Encoder::T5Encoder(const nlohmann::json& config, const ScoreHeadSpec& scores)
    : Model(config),
      c_(config),
      prefix_(scores.score == RowScore::tags ? "transformer." : ""),
      pools_(scores.score != RowScore::tags),
      shared_(c_.vocab_size, c_.d_model),
      embed_(&shared_),
      encoder_(c_, false),
      head_(shared_.weight, {}) {
  add(prefix_ + "shared", shared_);
  encoder_.add("embed_tokens", embed_);
  add(prefix_ + "encoder", encoder_);
  const ScoreHeadFacts facts{.hidden_size = c_.d_model,
                             .outputs = scores.outputs(),
                             .numbers = scores.score == RowScore::number,
                             .bias = true,
                             .dropout = config_double(config, "classifier_dropout", 0)};
  Module& module = head_.score_with(facts);
  if (scores.score != RowScore::vector) add(pools_ ? "score" : "classifier", module);
  assign_names();
}

std::vector<Module*> T5Encoder::blocks() {
  std::vector<Module*> all;
  for (const auto& block : encoder_.blocks) all.push_back(block.get());
  return all;
}

std::vector<std::string> T5Encoder::tied_names() const {
  return {prefix_ + "shared.weight", prefix_ + "encoder.embed_tokens.weight"};
}

// states [rows, seq, D] -> [labels, D], fp32
at::Tensor T5Encoder::mean_over_texts(const at::Tensor& states, const MicroBatch& batch) const {
  const at::Tensor positions = at::arange(states.size(1), batch.input_lengths.options());
  const at::Tensor is_text = positions.lt(batch.input_lengths.unsqueeze(1)).to(at::kFloat);
  const at::Tensor sums = (states.to(at::kFloat) * is_text.unsqueeze(2)).sum(1);
  const at::Tensor means = sums / batch.input_lengths.to(at::kFloat).unsqueeze(1);
  return means.index_select(0, batch.supervised_rows.div(states.size(1), "floor"));
}

at::Tensor T5Encoder::supervised_states(const MicroBatch& batch, const ForwardContext& context) const {
  TORCH_CHECK(!batch.packed, "an encoder alone does not pack");
  T5Pass pass;
  pass.context = &context;
  pass.model = this;
  pass.dropout = context.training ? c_.dropout : 0.0;
  pass.rows = row_keys(batch.dropout_keys, batch.input_ids.size(1));
  pass.lengths = batch.input_lengths;
  const at::Tensor embedded = noisy(embed_.forward(batch.input_ids, dtype()), batch, pass.rows, context);
  const at::Tensor states = encoder_.forward(embedded, std::nullopt, pass, context.recompute_blocks);
  const at::Tensor keys = pass.rows.flatten().index_select(0, batch.supervised_rows);
  const at::Tensor chosen =
      pools_ ? mean_over_texts(states, batch) : states.flatten(0, 1).index_select(0, batch.supervised_rows);
  return head_.states(chosen, keys, context);
}

std::unique_ptr<Generation> T5Encoder::generate(at::Device /*device*/) const {
  throw ConfigError("an encoder alone writes no text; `trainer generate --classify` prints what it gives");
}

}  // namespace trainer
