#include "data/survey.h"

#include <algorithm>

#include "trainer/data/batching.h"

#include "base/utf8.h"

namespace trainer {
namespace {

int64_t count(std::span<const int32_t> ids, int32_t id) { return std::count(ids.begin(), ids.end(), id); }

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\n") == std::string_view::npos; }

void add_lengths(SideReport& side, int64_t tokens, int64_t lost) {
  side.lengths.add(tokens + lost);
  side.tokens += tokens;
  side.longest = std::max(side.longest, tokens);
  side.truncated += lost > 0;
  side.tokens_lost += lost;
}

}  // namespace

Survey::Survey(const Tokenizer& tokenizer, DataKind kind, int64_t sides, RowScore score)
    : tokenizer_(&tokenizer),
      spelling_(tokenizer),
      kind_(kind),
      sides_(sides),
      labels_are_tokens_(score == RowScore::none) {
  counts_.kind = counts_.layout = kind;
  const std::vector<int32_t> with = tokenizer.encode("a", true), without = tokenizer.encode("a", false);
  if (!with.empty() && !without.empty() && with.front() != without.front()) begin_ = with.front();
}

void Survey::add(uint64_t offset, const std::vector<EncodedSample>& samples,
                 const std::function<Dataset::Texts()>& texts,
                 const std::function<std::vector<std::string>()>& learned) {
  const NamedRow row{.offset = offset};
  counts_.split_rows += samples.size() > static_cast<size_t>(sides_);
  bool truncated = false, unknown = false, doubled = false, dropped = false;
  for (const EncodedSample& encoded : samples) {
    truncated |= encoded.input_lost + encoded.target_lost > 0;
    if (encoded.dropped) {
      dropped = true;
      add_dropped(encoded);
      continue;
    }
    add(encoded, row);
    unknown |= has_unknown(encoded);
    doubled |= doubles_ends(encoded);
  }
  counts_.dropped_rows += dropped;
  if (doubled) counts_.doubled_ends.add(row);
  if (std::ranges::any_of(samples, &EncodedSample::equal_sides)) counts_.equal_sides.add(row);
  if (!spelling_.keeps_everything()) add_unspelled(row, learned());
  if (truncated) counts_.truncated.add(row);
  if (unknown) counts_.unknown.add(row);
  if (kind_ == DataKind::chat && !unknown) return;  // a template adds text to any message
  const Dataset::Texts both = texts();
  if (is_blank(both.input)) counts_.input.empty.add(row);
  if (labels_are_tokens_ && kind_has_target(kind_) && is_blank(both.target)) counts_.target.empty.add(row);
  if (!unknown) return;
  for (const EncodedSample& encoded : samples) add_unknown(encoded, both);
}

void Survey::add_marks(uint64_t offset, const std::vector<std::string>& marks) {
  if (marks.empty()) return;
  counts_.unused_marks.add({.offset = offset});
  counts_.unused_mark_fields.insert(marks.begin(), marks.end());
}

void Survey::add(const EncodedSample& encoded, const NamedRow& row) {
  counts_.samples++;
  counts_.undesirable += !encoded.sample.desirable;
  add_lengths(counts_.input, encoded.input_tokens, encoded.input_lost);
  if (labels_are_tokens_ && (kind_has_target(kind_) || encoded.target_tokens > 0))
    add_lengths(counts_.target, encoded.target_tokens, encoded.target_lost);
  counts_.longest_sample = std::max(counts_.longest_sample, encoded.input_tokens + encoded.target_tokens);
  const int64_t supervised = supervised_tokens(encoded.sample, kind_ == DataKind::seq2seq);
  counts_.supervised_tokens += supervised;
  counts_.without_supervision += supervised == 0;
  if (supervised == 0) add_nothing(encoded, row);
  if (encoded.has_empty_answer) counts_.empty_answers.add(row);
  if (kind_ == DataKind::chat) add_conversation(encoded);
}

void Survey::add_conversation(const EncodedSample& encoded) {
  counts_.conversations.add(encoded.input_tokens + encoded.input_lost + encoded.target_tokens +
                            encoded.target_lost);
}

void Survey::add_nothing(const EncodedSample& encoded, const NamedRow& row) {
  NothingToLearn& nothing = counts_.nothing;
  const bool answers = kind_ == DataKind::chat || kind_ == DataKind::completion;
  RowCount& reason = !encoded.counts                      ? nothing.not_counted
                     : answers && encoded.target_lost > 0 ? nothing.cut_away
                     : kind_ != DataKind::chat            ? nothing.too_short
                     : encoded.has_answer                 ? nothing.not_counted
                                                          : nothing.no_answer;
  reason.add(row);
}

void Survey::add_dropped(const EncodedSample& encoded) {
  if (kind_ == DataKind::chat) add_conversation(encoded);
  counts_.input.lengths.add(encoded.input_tokens + encoded.input_lost);
  const int64_t target = encoded.target_tokens + encoded.target_lost;
  if (!labels_are_tokens_) return;
  if (kind_has_target(kind_) || target > 0) counts_.target.lengths.add(target);
}

void Survey::add_unspelled(const NamedRow& row, const std::vector<std::string>& learned) {
  std::set<std::string> lost;
  for (const std::string& text : learned) spelling_.find_lost(text, lost);
  if (lost.empty()) return;
  counts_.unspelled.add(row);
  counts_.unspelled_characters.merge(lost);
}

bool Survey::doubles_ends(const EncodedSample& encoded) const {
  const auto& ids = encoded.sample.input_ids;
  const auto& labels = encoded.sample.labels;
  if (begin_ && ids.size() > 1 && ids[0] == *begin_ && ids[1] == *begin_) return true;
  const auto end = tokenizer_->eos_id();
  if (!end || kind_ == DataKind::chat) return false;
  for (const auto* side : {&ids, &labels}) {
    if (side == &labels && !labels_are_tokens_) continue;
    const size_t size = side->size();
    if (size > 1 && (*side)[size - 1] == *end && (*side)[size - 2] == *end) return true;
  }
  return false;
}

bool Survey::has_unknown(const EncodedSample& encoded) const {
  const auto unknown = tokenizer_->unk_id();
  if (!unknown) return false;
  return count(encoded.sample.input_ids, *unknown) > 0 ||
         (labels_are_tokens_ && count(encoded.sample.labels, *unknown) > 0);
}

void Survey::add_unknown(const EncodedSample& encoded, const Dataset::Texts& texts) {
  const int32_t unknown = *tokenizer_->unk_id();
  const int64_t in_ids = count(encoded.sample.input_ids, unknown);
  const int64_t in_target =
      kind_ == DataKind::text || !labels_are_tokens_ ? 0 : count(encoded.sample.labels, unknown);
  const bool target_is_in_ids = kind_ == DataKind::completion || kind_ == DataKind::chat;
  add_unknown(target_is_in_ids ? in_ids - in_target : in_ids, texts.input, counts_.input);
  add_unknown(in_target, texts.target, counts_.target);
}

void Survey::add_unknown(int64_t tokens, std::string_view text, SideReport& side) {
  if (tokens == 0) return;
  side.unknown_tokens += tokens;
  side.with_unknown++;
  find_unknown_characters(text, side.unknown_characters);
}

void Survey::find_unknown_characters(std::string_view text, std::set<std::string>& found) {
  for (size_t at = 0; at < text.size();) {
    const std::string character(text.substr(at, character_length(text, at)));
    at += character.size();
    if (is_unknown(character)) found.insert(character);
  }
}

bool Survey::is_unknown(const std::string& character) {
  const auto [place, first_time] = is_unknown_.try_emplace(character, false);
  if (first_time) place->second = count(tokenizer_->encode(character, false), *tokenizer_->unk_id()) > 0;
  return place->second;
}

}  // namespace trainer
