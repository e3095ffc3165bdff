#include "data/stored_counts.h"

namespace trainer {
namespace {

nlohmann::json stored_rows(const RowCount& rows) {
  nlohmann::json first = nlohmann::json::array();
  for (const NamedRow& row : rows.first) first.push_back({row.offset, row.line});
  return {rows.count, first};
}

RowCount rows_from(const nlohmann::json& stored) {
  RowCount rows{stored.at(0), {}};
  for (const nlohmann::json& row : stored.at(1))
    rows.first.push_back({.offset = row.at(0), .line = row.at(1)});
  return rows;
}

nlohmann::json stored_lengths(const LengthCounts& lengths) {
  nlohmann::json stored = nlohmann::json::array();
  for (const auto& [length, times] : lengths.counts()) stored.push_back({length, times});
  return stored;
}

LengthCounts lengths_from(const nlohmann::json& stored) {
  LengthCounts lengths;
  for (const nlohmann::json& length : stored) lengths.add(length.at(0), length.at(1));
  return lengths;
}

nlohmann::json stored_nothing(const NothingToLearn& nothing) {
  return {stored_rows(nothing.no_answer), stored_rows(nothing.not_counted), stored_rows(nothing.cut_away),
          stored_rows(nothing.too_short)};
}

nlohmann::json stored_side(const SideReport& side) {
  return {{"lengths", stored_lengths(side.lengths)},
          {"tokens", side.tokens},
          {"longest", side.longest},
          {"truncated", side.truncated},
          {"tokens_lost", side.tokens_lost},
          {"unknown_tokens", side.unknown_tokens},
          {"with_unknown", side.with_unknown},
          {"unknown_characters", side.unknown_characters},
          {"empty", stored_rows(side.empty)}};
}

SideReport side_from(const nlohmann::json& stored) {
  SideReport side;
  side.lengths = lengths_from(stored.at("lengths"));
  side.tokens = stored.at("tokens");
  side.longest = stored.at("longest");
  side.truncated = stored.at("truncated");
  side.tokens_lost = stored.at("tokens_lost");
  side.unknown_tokens = stored.at("unknown_tokens");
  side.with_unknown = stored.at("with_unknown");
  stored.at("unknown_characters").get_to(side.unknown_characters);
  side.empty = rows_from(stored.at("empty"));
  return side;
}

}  // namespace

nlohmann::json stored_counts(const DataReport& counts) {
  return {{"samples", counts.samples},
          {"dropped", counts.dropped_rows},
          {"split", counts.split_rows},
          {"input", stored_side(counts.input)},
          {"target", stored_side(counts.target)},
          {"longest_sample", counts.longest_sample},
          {"truncated", stored_rows(counts.truncated)},
          {"unknown", stored_rows(counts.unknown)},
          {"supervised_tokens", counts.supervised_tokens},
          {"without_supervision", counts.without_supervision},
          {"nothing", stored_nothing(counts.nothing)},
          {"empty_answers", stored_rows(counts.empty_answers)},
          {"conversations", stored_lengths(counts.conversations)}};
}

DataReport counts_from(const nlohmann::json& stored) {
  DataReport counts;
  counts.samples = stored.at("samples");
  counts.dropped_rows = stored.at("dropped");
  counts.split_rows = stored.at("split");
  counts.input = side_from(stored.at("input"));
  counts.target = side_from(stored.at("target"));
  counts.longest_sample = stored.at("longest_sample");
  counts.truncated = rows_from(stored.at("truncated"));
  counts.unknown = rows_from(stored.at("unknown"));
  counts.supervised_tokens = stored.at("supervised_tokens");
  counts.without_supervision = stored.at("without_supervision");
  const nlohmann::json& nothing = stored.at("nothing");
  counts.nothing = {rows_from(nothing.at(0)), rows_from(nothing.at(1)), rows_from(nothing.at(2)),
                    rows_from(nothing.at(3))};
  counts.empty_answers = rows_from(stored.at("empty_answers"));
  counts.conversations = lengths_from(stored.at("conversations"));
  return counts;
}

}  // namespace trainer
