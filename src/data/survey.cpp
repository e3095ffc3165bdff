#include "data/survey.h"

#include <algorithm>
#include <span>

#include "trainer/data/batching.h"

namespace trainer {
namespace {

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

void Survey::add(const EncodedSample& encoded, const Dataset::Texts& texts, DataKind kind) {
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
  if (in_input > 0) find_unknown_characters(texts.input, unknown_in_inputs_);
  if (in_target > 0) find_unknown_characters(texts.target, unknown_in_targets_);
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
  const DataReport& more = other.counts_;
  DataReport& all = counts_;
  all.samples += more.samples;
  all.input_tokens += more.input_tokens;
  all.target_tokens += more.target_tokens;
  all.supervised_tokens += more.supervised_tokens;
  all.longest_input = std::max(all.longest_input, more.longest_input);
  all.longest_target = std::max(all.longest_target, more.longest_target);
  all.longest_sample = std::max(all.longest_sample, more.longest_sample);
  all.truncated_inputs += more.truncated_inputs;
  all.truncated_targets += more.truncated_targets;
  all.unknown_tokens_in_inputs += more.unknown_tokens_in_inputs;
  all.unknown_tokens_in_targets += more.unknown_tokens_in_targets;
  all.samples_with_unknown_inputs += more.samples_with_unknown_inputs;
  all.samples_with_unknown_targets += more.samples_with_unknown_targets;
  all.without_supervision += more.without_supervision;
  unknown_in_inputs_.insert(other.unknown_in_inputs_.begin(), other.unknown_in_inputs_.end());
  unknown_in_targets_.insert(other.unknown_in_targets_.begin(), other.unknown_in_targets_.end());
}

DataReport Survey::report() const {
  DataReport report = counts_;
  report.unknown_characters_in_inputs = joined(unknown_in_inputs_);
  report.unknown_characters_in_targets = joined(unknown_in_targets_);
  return report;
}

}  // namespace trainer
