// What config.json says of a head that scores texts instead of writing them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/config/values.h"

namespace trainer {

struct ScoreHeadSpec {
  RowScore score = RowScore::label;  // what the outputs mean; answer: a reward
  std::vector<std::string> labels;   // the names of the outputs (id2label)
  int64_t pad_id = -1;               // config.json's pad_token_id; Transformers finds the last token by it
  bool encoder_only = false;         // of an encoder-decoder, whose states are pooled
  uint64_t seed = 0;                 // of the values of a head that a model gets anew

  int64_t outputs() const { return static_cast<int64_t>(labels.size()); }
  // false: the names are Transformers' own, of outputs that nobody has named.
  bool is_named() const { return !labels.empty() && labels.front() != "LABEL_0"; }
};

// Returns the head that config.json describes: that of an architecture ...ForSequenceClassification,
// ...ForTokenClassification or ...EncoderModel. nullopt for one that writes text.
std::optional<ScoreHeadSpec> score_head_in(const nlohmann::json& config);

// Returns the keys of config.json that describe the head, as Transformers writes them. Throws FormatError if
// Transformers has no such head for the model's family.
nlohmann::json score_head_keys(const nlohmann::json& config, const ScoreHeadSpec& head);

// Returns whether the tensor is one of such a head: score.*, classifier.*, or classification_head.* of a T5.
bool is_of_score_head(const std::string& tensor);

}  // namespace trainer
