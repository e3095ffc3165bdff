#include "data/row_encoder.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "data/answers_encoder.h"
#include "data/chat_encoder.h"
#include "data/label_encoder.h"
#include "data/pairs_encoder.h"
#include "data/segments_encoder.h"
#include "data/text_encoder.h"
#include "text/chat/marks.h"

namespace trainer {
namespace {

// Returns whether a field says true or false, also in a table.
bool judges(const RowParser& row, const std::string& field) {
  const auto value = row.json(field);
  if (!value) return false;
  if (!value->is_string()) return value->is_boolean();
  const auto& text = value->get_ref<const std::string&>();
  return text == "true" || text == "false" || text == "True" || text == "False";
}

// Rows for KTO: `label` in those of TRL, `kto_tag` in those of LLaMA-Factory.
void refuse_judged_answers(const DataConfig& config, const RowParser& row,
                           const std::vector<std::string>& fields) {
  const auto has = [&](const char* name) { return std::ranges::find(fields, name) != fields.end(); };
  const bool named = !config.input.empty() && !config.target.empty();
  if (named || config.kind == DataKind::text) return;
  const bool pair = has("prompt") && has("completion"), chat = has("messages") || has("conversations");
  const char* judgement = judges(row, "kto_tag")                   ? "kto_tag"
                          : (pair || chat) && judges(row, "label") ? "label"
                                                                   : nullptr;
  if (judgement == nullptr) return;
  throw DataError(concat(
      "these rows are judged answers (\"", judgement,
      "\" is true or false); objective.name=kto trains on them (docs/preferences.md), and otherwise the bad ",
      "answers would be learned, too. Or keep the rows in which \"", judgement,
      "\" is true, and remove that field",
      pair ? "; if it says something else of the answer: data.input=prompt data.target=completion" : ""));
}

}  // namespace

std::vector<std::string> unused_marks(const DataConfig& config, const RowParser& row) {
  std::vector<std::string> unused;
  if (config.unknown_marks == UnknownMarks::ignore) return unused;
  for (const std::string& field : row.fields_that(is_mark)) {
    if (field == config.loss_weight || field == config.input || field == config.target) continue;
    const auto value = row.json(field);
    if (!value || value->is_null() || value->is_object() || *value == "") continue;
    if (!value->is_array()) {
      unused.push_back(field);
    } else if (!value->empty() && (value->front().is_boolean() || value->front().is_number())) {
      unused.push_back(field + "[]");
    }
  }
  return unused;
}

std::unique_ptr<RowEncoder> make_row_encoder(const DataConfig& config, const std::string& model,
                                             const RowParser& first_row, const Tokenizer& tokenizer,
                                             bool encoder_decoder) {
  const std::vector<std::string> fields = first_row.fields();
  return in_family(ErrorCode::data_fields, [&]() -> std::unique_ptr<RowEncoder> {
    if (config.kind == DataKind::preference || config.kind == DataKind::feedback)
      return make_answers_encoder(config, model, first_row, tokenizer, encoder_decoder);
    if (config.kind == DataKind::span_corruption) {
      if (!encoder_decoder)
        throw ConfigError(
            "data.kind: span_corruption is for encoder-decoders (T5); a decoder learns running "
            "text with data.kind: text");
      DataConfig text = config;
      text.kind = DataKind::text;
      return std::make_unique<SpanEncoder>(choose_fields(text, fields, /*encoder_decoder=*/false), config,
                                           tokenizer);
    }
    if (config.kind == DataKind::pairs) return make_pairs_encoder(config, first_row, tokenizer);
    if (config.kind == DataKind::classification)
      return make_label_encoder(config, model, first_row, tokenizer, encoder_decoder);
    refuse_judged_answers(config, first_row, fields);
    if (auto chat = make_chat_encoder(config, model, first_row, tokenizer, encoder_decoder)) return chat;
    if (auto segments = make_segments_encoder(config, first_row, tokenizer, encoder_decoder)) return segments;
    return std::make_unique<TextEncoder>(choose_fields(config, fields, encoder_decoder), config, tokenizer);
  });
}

}  // namespace trainer
