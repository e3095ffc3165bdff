#include "data/attention_groups.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include <ATen/ATen.h>

namespace trainer {
namespace {

// Costs in pairs of a query and a key. A padded token is copied several times; a group needs some twenty
// operators. Measured with T5-small's 8 heads on two cores.
constexpr int64_t kCostOfToken = 16, kCostOfGroup = 3000;
// So that the attention weights of a group are some 32 MB at most.
constexpr int64_t kMostPairs = 1 << 20;
// Padded tokens that all samples together may have more than they have tokens: they take memory.
constexpr int64_t kSpareTokens = 1024;

// Returns the places of a group's tokens in the packed row, and their padded shape.
PaddedRows padded_rows(const std::vector<int64_t>& lengths, const std::vector<int64_t>& starts,
                       const std::vector<size_t>& group, Upload& upload, at::Device device) {
  PaddedRows out;
  for (const size_t sample : group) out.length = std::max(out.length, lengths[sample]);
  std::vector<int64_t> rows, places;
  for (size_t i = 0; i < group.size(); i++) {
    for (int64_t position = 0; position < lengths[group[i]]; position++) {
      rows.push_back(starts[group[i]] + position);
      places.push_back(static_cast<int64_t>(i) * out.length + position);
    }
  }
  out.rows = upload(host_vector(rows, device));
  out.places = upload(host_vector(places, device));
  return out;
}

std::vector<int64_t> starts_of(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> starts(lengths.size(), 0);
  std::exclusive_scan(lengths.begin(), lengths.end(), starts.begin(), int64_t{0});
  return starts;
}

template <class Value>
std::vector<Value> chosen(const std::vector<Value>& values, const std::vector<size_t>& indices) {
  std::vector<Value> out;
  for (const size_t index : indices) out.push_back(values[index]);
  return out;
}

}  // namespace

// Dynamic programming over the end of the last group, with the samples in order of their length.
std::vector<std::vector<size_t>> divide_into_groups(const std::vector<std::pair<int64_t, int64_t>>& samples) {
  std::vector<size_t> order(samples.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return samples[a] > samples[b]; });
  int64_t all_queries = 0, all_keys = 0;
  for (const auto& [queries, keys] : samples) {
    all_queries += queries;
    all_keys += keys;
  }
  std::vector<int64_t> least(order.size() + 1, std::numeric_limits<int64_t>::max());
  std::vector<size_t> begin_of_last(order.size() + 1, 0);
  least[0] = 0;
  for (size_t end = 1; end <= order.size(); end++) {
    int64_t queries = 0, keys = 0;
    for (size_t begin = end; begin-- > 0;) {
      queries = std::max(queries, samples[order[begin]].first);
      keys = std::max(keys, samples[order[begin]].second);
      const auto count = static_cast<int64_t>(end - begin);
      const bool too_large = count * queries * keys > kMostPairs ||
                             count * queries > all_queries + kSpareTokens ||
                             count * keys > all_keys + kSpareTokens;
      if (count > 1 && too_large) break;
      const int64_t cost =
          least[begin] + kCostOfGroup + count * (queries * keys + kCostOfToken * (queries + keys));
      if (cost < least[end]) {
        least[end] = cost;
        begin_of_last[end] = begin;
      }
    }
  }
  std::vector<std::vector<size_t>> groups;
  for (size_t end = order.size(); end > 0; end = begin_of_last[end]) {
    groups.emplace_back(order.begin() + static_cast<std::ptrdiff_t>(begin_of_last[end]),
                        order.begin() + static_cast<std::ptrdiff_t>(end));
    std::ranges::sort(groups.back());
  }
  return groups;
}

std::vector<AttentionGroup> attention_groups(const std::vector<int64_t>& queries,
                                             const std::vector<int64_t>& keys,
                                             const std::vector<int64_t>& dropout_keys, Upload& upload,
                                             at::Device device) {
  const bool self = queries == keys;
  std::vector<std::pair<int64_t, int64_t>> samples;
  for (size_t i = 0; i < queries.size(); i++) samples.emplace_back(queries[i], keys[i]);
  const std::vector<int64_t> query_starts = starts_of(queries), key_starts = starts_of(keys);
  std::vector<AttentionGroup> groups;
  for (const std::vector<size_t>& group : divide_into_groups(samples)) {
    AttentionGroup& added = groups.emplace_back();
    added.samples = static_cast<int64_t>(group.size());
    added.queries = padded_rows(queries, query_starts, group, upload, device);
    added.keys = self ? added.queries : padded_rows(keys, key_starts, group, upload, device);
    added.key_lengths = upload(host_vector(chosen(keys, group), device));
    added.dropout_keys = upload(host_vector(chosen(dropout_keys, group), device));
  }
  return groups;
}

}  // namespace trainer
