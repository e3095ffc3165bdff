#include "data/count_repeats.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "data/repeats.h"

namespace trainer {
namespace {

NamedRow named(const Dataset& data, int64_t index, const std::string& twin) {
  NamedRow row;
  row.origin = data.origin(index);
  row.note = twin;
  return row;
}

RowCount duplicates(const Dataset& data) {
  std::vector<uint64_t> hashes;
  hashes.reserve(static_cast<size_t>(data.size()));
  std::vector<int64_t> pieces;  // samples that do not begin a row
  for (int64_t index = 0; index < data.size(); index++) {
    data.begins_row(index) ? hashes.push_back(data.content(index)) : pieces.push_back(index);
  }
  // Returns the first sample of a row, counting the pieces before it.
  const auto sample_of = [&](int64_t row) {
    int64_t index = row;
    for (const int64_t piece : pieces) {
      if (piece > index) break;
      index++;
    }
    return index;
  };
  const Repeats repeats = find_repeats(hashes, RowCount::kNamed);
  RowCount count{repeats.count, {}};
  for (const Repeat& repeat : repeats.first)
    count.first.push_back(named(data, sample_of(repeat.row), data.origin(sample_of(repeat.same_as))));
  return count;
}

// Returns the rows of `eval` whose hash is also in `train`.
template <class HashOf>
RowCount overlap(const Dataset& train, const Dataset& eval, const HashOf& hash_of) {
  std::vector<uint64_t> hashes;
  for (int64_t index = 0; index < eval.size(); index++) hashes.push_back(hash_of(eval, index));
  SeenHashes seen(hashes);
  for (int64_t index = 0; index < train.size(); index++) seen.add(hash_of(train, index), index);
  RowCount count;
  for (int64_t index = 0; index < eval.size(); index++) {
    const std::optional<int64_t> twin = seen.first_row(hashes[static_cast<size_t>(index)]);
    if (!twin || !eval.begins_row(index)) continue;
    count.count++;
    if (count.first.size() < RowCount::kNamed) count.first.push_back(named(eval, index, train.origin(*twin)));
  }
  return count;
}

}  // namespace

void count_repeats(const Dataset& train, const Dataset* eval, RunDataReport& report) {
  report.train.duplicates = duplicates(train);
  if (eval == nullptr) return;
  report.eval->duplicates = duplicates(*eval);
  const auto input = [](const Dataset& data, int64_t index) { return data.input(index); };
  const auto content = [](const Dataset& data, int64_t index) { return data.content(index); };
  report.overlap = Overlap{overlap(train, *eval, input), overlap(train, *eval, content)};
}

}  // namespace trainer
