// Adds the counts of one part of the rows to those of another.
#include <algorithm>
#include <tuple>

#include "trainer/data/report.h"

namespace trainer {
namespace {

// The report shows fewer.
constexpr size_t kMostCharacters = 1000;

void keep_first(std::vector<NamedRow>& rows) {
  std::ranges::sort(rows, {}, [](const NamedRow& row) { return std::tuple(row.file, row.offset); });
  if (rows.size() > RowCount::kNamed) rows.resize(RowCount::kNamed);
}

void merge(SideReport& all, const SideReport& more) {
  all.lengths.merge(more.lengths);
  all.tokens += more.tokens;
  all.longest = std::max(all.longest, more.longest);
  all.truncated += more.truncated;
  all.tokens_lost += more.tokens_lost;
  all.unknown_tokens += more.unknown_tokens;
  all.with_unknown += more.with_unknown;
  for (const std::string& character : more.unknown_characters) {
    if (all.unknown_characters.size() < kMostCharacters) all.unknown_characters.insert(character);
  }
  all.empty.merge(more.empty);
}

}  // namespace

void RowCount::add(const NamedRow& row) {
  count++;
  if (first.size() == kNamed && row.file == first.back().file && row.offset > first.back().offset) return;
  first.push_back(row);
  keep_first(first);
}

void RowCount::merge(const RowCount& other) {
  count += other.count;
  first.insert(first.end(), other.first.begin(), other.first.end());
  keep_first(first);
}

void DataReport::merge(const DataReport& more) {
  rows += more.rows;
  samples += more.samples;
  malformed.merge(more.malformed);
  dropped_rows += more.dropped_rows;
  split_rows += more.split_rows;
  trainer::merge(input, more.input);
  trainer::merge(target, more.target);
  longest_sample = std::max(longest_sample, more.longest_sample);
  truncated.merge(more.truncated);
  unknown.merge(more.unknown);
  supervised_tokens += more.supervised_tokens;
  without_supervision += more.without_supervision;
  nothing.no_answer.merge(more.nothing.no_answer);
  nothing.not_counted.merge(more.nothing.not_counted);
  nothing.cut_away.merge(more.nothing.cut_away);
  nothing.too_short.merge(more.nothing.too_short);
  empty_answers.merge(more.empty_answers);
  conversations.merge(more.conversations);
}

std::vector<NamedRow*> DataReport::named_rows() {
  std::vector<NamedRow*> named;
  for (RowCount* rows : {&malformed, &truncated, &unknown, &input.empty, &target.empty, &nothing.no_answer,
                         &nothing.not_counted, &nothing.cut_away, &nothing.too_short, &empty_answers}) {
    for (NamedRow& row : rows->first) named.push_back(&row);
  }
  return named;
}

}  // namespace trainer
