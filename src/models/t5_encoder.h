// The encoder of a T5 alone: T5EncoderModel, whose states are averaged over a text, and
// T5ForTokenClassification.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/models/score_head.h"

#include "models/t5.h"

namespace trainer {

class T5Encoder : public Model {
 public:
  T5Encoder(const nlohmann::json& config, const ScoreHeadSpec& scores);

  // Of each label's token; or of each text that has a label, the mean over its tokens.
  at::Tensor supervised_states(const MicroBatch& batch, const ForwardContext& context) const override;
  const OutputHead& head() const override { return head_; }
  std::unique_ptr<Generation> generate(at::Device device) const override;

  bool encoder_decoder() const override { return false; }
  int64_t num_blocks() const override { return c_.encoder_layers; }
  std::vector<Module*> blocks() override;
  std::vector<Parameter*> vocabulary() override { return head_.tables(); }
  int64_t vocab_size() const override { return shared_.weight.shape[0]; }
  void untie_head() override {}
  std::vector<std::string> default_lora_targets() const override { return {"q", "v"}; }
  CollateOptions collate_options() const override { return {.encoder_decoder = false, .pad_id = c_.pad_id}; }
  std::vector<std::string> tied_names() const override;
  bool packs() const override { return false; }
  bool has_dropout() const override { return true; }
  double dropout() const override { return c_.dropout; }
  void set_dropout(double p) override { c_.dropout = p; }

 private:
  at::Tensor mean_over_texts(const at::Tensor& states, const MicroBatch& batch) const;

  T5Config c_;
  std::string prefix_;
  bool pools_;
  Embedding shared_;
  Embedding embed_;
  T5Stack encoder_;
  OutputHead head_;
};

}  // namespace trainer
