#include "data/fields.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/text/conversation.h"

#include "base/text.h"

namespace trainer {
namespace {

// Rows of a decoder with one of the first pairs are read as such even if they have a field "text".
constexpr size_t kBeforeText = 5;
constexpr std::array<KnownPair, 39> kKnownPairs{
    {{"input", "target"},         {"source", "target"},      {"prompt", "completion"},
     {"question", "answer"},      {"input", "output"},       {"prompt", "response"},
     {"prompt", "output"},        {"prompt", "answer"},      {"instruction", "output"},
     {"instruction", "response"}, {"instruction", "answer"}, {"instruction", "completion"},
     {"query", "response"},       {"query", "answer"},       {"question", "response"},
     {"question", "answers"},     {"input", "response"},     {"input", "completion"},
     {"input", "label"},          {"problem", "solution"},   {"article", "highlights"},
     {"article", "summary"},      {"document", "summary"},   {"dialogue", "summary"},
     {"text", "summary"},         {"report", "summary"},     {"source", "summary"},
     {"text", "headline"},        {"text", "title"},         {"text", "target"},
     {"text", "output"},          {"text", "label"},         {"text", "label_text"},
     {"text", "category"},        {"text", "sentiment"},     {"text", "intent"},
     {"sentence", "label"},       {"review", "sentiment"},   {"review", "label"}}};

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

constexpr const char* kGiveBoth =
    "set data.input and data.target to field names or templates like \"Translate: {de}\"";

// Returns the advice for conversations if the rows are such; otherwise `others`.
std::string advice(const DataConfig& config, const std::vector<std::string>& names, std::string others) {
  if (!conversation_form(names)) return others;
  const bool named = !config.input.empty() || !config.target.empty();
  return concat("set data.kind to chat, as the rows are conversations",
                named ? ", and leave data.input and data.target out" : "");
}

Fields choose_text(const DataConfig& config, const std::vector<std::string>& names) {
  if (!config.target.empty()) {
    throw ConfigError(
        "data.target: kind text has no target; set data.kind to completion, or leave data.target out");
  }
  if (config.input.empty() && !contains(names, "text")) {
    throw DataError(concat("kind text needs a field \"text\", the row has ", join_some(names), "; ",
                           advice(config, names, "set data.input to a field name or a template")));
  }
  return {DataKind::text, config.input.empty() ? "text" : config.input, ""};
}

// What an encoder-decoder says of rows with a "text" and nothing that could be its target.
[[noreturn]] void throw_no_target(const std::vector<std::string>& names, const char* advice) {
  if (names.size() == 1) throw DataError(concat("the row has a field \"text\" only: ", advice));
  throw DataError(
      concat("of the fields ", join_some(names), ", none is known as the target of \"text\": ", advice));
}

}  // namespace

std::span<const KnownPair> known_pairs() { return kKnownPairs; }

TextTemplate TextTemplate::parse(const std::string& text, std::string_view key) {
  TextTemplate result;
  if (text.find_first_of("{}") == std::string::npos) {
    result.pieces_.push_back({"", text});
    result.fields_.push_back(text);
    result.is_name_ = true;
    return result;
  }
  const auto fail = [&](const std::string& what) {
    throw ConfigError(concat(key, ": \"", text, "\": ", what));
  };
  std::string literal;
  for (size_t at = 0; at < text.size(); at++) {
    const char c = text[at];
    if ((c == '{' || c == '}') && at + 1 < text.size() && text[at + 1] == c) {
      literal += text[at++];
    } else if (c == '{') {
      const size_t close = text.find('}', at);
      if (close == std::string::npos) fail("a { is not closed (a literal one is written {{)");
      const std::string field = text.substr(at + 1, close - at - 1);
      if (field.empty() || field.find('{') != std::string::npos)
        fail("there is no field name between { and }");
      if (!literal.empty()) result.pieces_.push_back({std::exchange(literal, ""), ""});
      result.pieces_.push_back({"", field});
      result.fields_.push_back(field);
      at = close;
    } else if (c == '}') {
      fail("a } without a { before it (a literal one is written }})");
    } else {
      literal += c;
    }
  }
  if (result.fields_.empty()) fail("the template has no {field}, so every sample would be the same");
  if (!literal.empty()) result.pieces_.push_back({literal, ""});
  return result;
}

std::string TextTemplate::apply(const RowParser& row) const {
  std::string text;
  for (const Piece& piece : pieces_) {
    text += piece.field.empty() ? piece.literal : text_of(row, piece.field);
  }
  return text;
}

Fields choose_fields(const DataConfig& config, const std::vector<std::string>& names, bool encoder_decoder) {
  constexpr const char* kNoText =
      "kind text has no target to train an encoder-decoder on; "
      "give rows with input and target fields, or set data.input and data.target";
  if (config.kind == DataKind::text) {
    if (encoder_decoder) throw ConfigError(concat("data.kind: ", kNoText));
    return choose_text(config, names);
  }
  Fields fields{encoder_decoder ? DataKind::seq2seq : DataKind::completion, config.input, config.target};
  if (!fields.input.empty() && !fields.target.empty()) return fields;
  const bool may_be_text = config.kind == DataKind::automatic && contains(names, "text") && !encoder_decoder;
  for (const KnownPair& pair : std::span(kKnownPairs).first(may_be_text ? kBeforeText : kKnownPairs.size())) {
    const bool input_known = !config.input.empty() || contains(names, pair.input);
    const bool target_known = !config.target.empty() || contains(names, pair.target);
    if (!input_known || !target_known) continue;
    if (fields.input.empty()) fields.input = pair.input;
    if (fields.target.empty()) fields.target = pair.target;
    return fields;
  }
  const bool text = config.kind == DataKind::automatic && config.target.empty() && contains(names, "text");
  if (text && !encoder_decoder) return choose_text(config, names);
  if (text) throw_no_target(names, kNoText);
  if (contains(names, "chosen") && contains(names, "rejected")) {
    const bool prompt = contains(names, "prompt") || !config.input.empty();
    throw DataError(
        concat("these rows are preferences (\"chosen\", \"rejected\"): objective.name=dpo trains on them "
               "(docs/preferences.md). To learn the chosen answers alone: data.target=chosen",
               prompt ? "" : " and data.input to the field of the question",
               " where they are text; where they are lists of messages, rename the field to \"messages\""));
  }
  const char* text_too = encoder_decoder ? "" : ", or data.kind to text and data.input to its field";
  throw DataError(concat("no known pair of input and target among the fields ", join_some(names), "; ",
                         advice(config, names, concat(kGiveBoth, text_too))));
}

namespace {

std::optional<double> number_in(const std::string& text) {
  if (text == "true" || text == "True") return 1;
  if (text == "false" || text == "False") return 0;
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && rest == end ? std::optional(value) : std::nullopt;
}

}  // namespace

float weight_of_row(const RowParser& row, const std::string& field) {
  if (field.empty()) return 1;
  const auto value = row.json(field);
  if (!value) throw DataError(concat("field \"", field, "\" is missing (data.loss_weight)"));
  std::optional<double> weight;
  if (value->is_number()) weight = value->get<double>();
  if (value->is_boolean()) weight = value->get<bool>() ? 1 : 0;
  if (value->is_string()) weight = number_in(value->get_ref<const std::string&>());
  if (weight && *weight >= 0 && *weight <= 1e6) return static_cast<float>(*weight);
  throw DataError(
      concat("field \"", field, "\" is ", value->dump(),
             "; data.loss_weight needs a number from 0 (not learned) to 1,000,000, or true or false"));
}

std::string weight_as_content(float weight) { return weight == 1 ? "" : concat("weight ", weight); }

}  // namespace trainer
