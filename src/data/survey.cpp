#include "data/survey.h"

#include <algorithm>
#include <span>

#include "trainer/data/batching.h"

namespace trainer {
namespace {

struct Count {
  const char* name;
  int64_t DataReport::*member;
};
constexpr Count kCounts[] = {{"samples", &DataReport::samples},
                             {"dropped_rows", &DataReport::dropped_rows},
                             {"split_rows", &DataReport::split_rows},
                             {"input_tokens", &DataReport::input_tokens},
                             {"target_tokens", &DataReport::target_tokens},
                             {"supervised_tokens", &DataReport::supervised_tokens},
                             {"truncated_inputs", &DataReport::truncated_inputs},
                             {"truncated_targets", &DataReport::truncated_targets},
                             {"unknown_tokens_in_inputs", &DataReport::unknown_tokens_in_inputs},
                             {"unknown_tokens_in_targets", &DataReport::unknown_tokens_in_targets},
                             {"samples_with_unknown_inputs", &DataReport::samples_with_unknown_inputs},
                             {"samples_with_unknown_targets", &DataReport::samples_with_unknown_targets},
                             {"without_supervision", &DataReport::without_supervision}};
constexpr Count kLargest[] = {{"longest_input", &DataReport::longest_input},
                              {"longest_target", &DataReport::longest_target},
                              {"longest_sample", &DataReport::longest_sample}};

// Bytes of the UTF-8 character that starts with this byte.
size_t character_length(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

int64_t count(std::span<const int32_t> ids, int32_t id) { return std::count(ids.begin(), ids.end(), id); }

std::string joined(const std::set<std::string>& characters) {
  constexpr size_t kShown = 20;
  std::string text;
  size_t shown = 0;
  for (const std::string& character : characters) {
    if (shown++ == kShown) return text + " …";
    text += (text.empty() ? "" : " ") + character;
  }
  return text;
}

}  // namespace

void Survey::add(const std::vector<EncodedSample>& samples, const std::function<Dataset::Texts()>& texts,
                 DataKind kind) {
  counts_.dropped_rows += samples.empty();
  counts_.split_rows += samples.size() > 1;
  for (const EncodedSample& encoded : samples) add(encoded, texts, kind);
}

void Survey::add(const EncodedSample& encoded, const std::function<Dataset::Texts()>& texts, DataKind kind) {
  const bool seq2seq = kind == DataKind::seq2seq;
  const Sample& sample = encoded.sample;
  counts_.samples++;
  counts_.input_tokens += encoded.input_tokens;
  counts_.target_tokens += encoded.target_tokens;
  counts_.longest_input = std::max(counts_.longest_input, encoded.input_tokens);
  counts_.longest_target = std::max(counts_.longest_target, encoded.target_tokens);
  counts_.longest_sample = std::max(counts_.longest_sample, encoded.input_tokens + encoded.target_tokens);
  counts_.truncated_inputs += encoded.input_lost > 0;
  counts_.truncated_targets += encoded.target_lost > 0;
  const int64_t supervised = supervised_tokens(sample, seq2seq);
  counts_.supervised_tokens += supervised;
  counts_.without_supervision += supervised == 0;

  const auto unknown = tokenizer_->unk_id();
  if (!unknown) return;
  const std::span<const int32_t> ids = sample.input_ids;
  const auto inputs = static_cast<size_t>(encoded.input_tokens);
  const int64_t in_input = count(ids.first(inputs), *unknown);
  const int64_t in_target =
      count(seq2seq ? std::span<const int32_t>(sample.labels) : ids.subspan(inputs), *unknown);
  counts_.unknown_tokens_in_inputs += in_input;
  counts_.unknown_tokens_in_targets += in_target;
  counts_.samples_with_unknown_inputs += in_input > 0;
  counts_.samples_with_unknown_targets += in_target > 0;
  if (in_input > 0) find_unknown_characters(texts().input, unknown_in_inputs_);
  if (in_target > 0) find_unknown_characters(texts().target, unknown_in_targets_);
}

void Survey::find_unknown_characters(std::string_view text, std::set<std::string>& found) {
  for (size_t at = 0; at < text.size();) {
    const std::string character(text.substr(at, character_length(text[at])));
    at += character.size();
    if (is_unknown(character)) found.insert(character);
  }
}

bool Survey::is_unknown(const std::string& character) {
  const auto [place, first_time] = is_unknown_.try_emplace(character, false);
  if (first_time) place->second = count(tokenizer_->encode(character, false), *tokenizer_->unk_id()) > 0;
  return place->second;
}

void Survey::merge(const Survey& other) {
  for (const Count& count : kCounts) counts_.*count.member += other.counts_.*count.member;
  for (const Count& most : kLargest)
    counts_.*most.member = std::max(counts_.*most.member, other.counts_.*most.member);
  unknown_in_inputs_.insert(other.unknown_in_inputs_.begin(), other.unknown_in_inputs_.end());
  unknown_in_targets_.insert(other.unknown_in_targets_.begin(), other.unknown_in_targets_.end());
}

nlohmann::json Survey::to_json() const {
  nlohmann::json json{{"unknown_in_inputs", unknown_in_inputs_}, {"unknown_in_targets", unknown_in_targets_}};
  for (const Count& count : kCounts) json[count.name] = counts_.*count.member;
  for (const Count& most : kLargest) json[most.name] = counts_.*most.member;
  return json;
}

void Survey::merge(const nlohmann::json& counted) {
  Survey other(*tokenizer_);
  for (const Count& count : kCounts) other.counts_.*count.member = counted.at(count.name);
  for (const Count& most : kLargest) other.counts_.*most.member = counted.at(most.name);
  counted.at("unknown_in_inputs").get_to(other.unknown_in_inputs_);
  counted.at("unknown_in_targets").get_to(other.unknown_in_targets_);
  merge(other);
}

DataReport Survey::report() const {
  DataReport report = counts_;
  report.unknown_characters_in_inputs = joined(unknown_in_inputs_);
  report.unknown_characters_in_targets = joined(unknown_in_targets_);
  return report;
}

}  // namespace trainer
