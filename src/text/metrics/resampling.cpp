// How sure a score is: sets of answers are drawn again from those that there are, with repeats.
#include <algorithm>
#include <cmath>
#include <map>

#include "base/random.h"
#include "text/metrics/metric.h"

namespace trainer {
namespace {

constexpr size_t kSets = 1000;

// Of each set and each answer in it, which one was drawn: a function of the two, so that every run and both
// sides of a comparison draw the same.
size_t drawn(size_t set, size_t place, size_t answers) {
  const uint64_t random = derive(derive(0x7363'6f72'6573ull, uint64_t{set}), uint64_t{place});
  return static_cast<size_t>(static_cast<unsigned __int128>(random) * answers >> 64);
}

// The values of a score in all sets.
using Draws = std::map<std::string, std::vector<double>>;

// `low` and `high`: the percentiles 2.5 and 97.5.
std::pair<double, double> middle_of(std::vector<double> values) {
  std::ranges::sort(values);
  const auto at = [&](double share) {
    return values[static_cast<size_t>(std::lround(share * static_cast<double>(values.size() - 1)))];
  };
  return {at(0.025), at(0.975)};
}

// How often the difference of a set is as far from its mean as the real difference is from 0, or further.
double p_value(const std::vector<double>& differences, double real) {
  double mean = 0;
  for (const double difference : differences) mean += difference / static_cast<double>(differences.size());
  const auto further = std::ranges::count_if(
      differences, [&](double difference) { return std::abs(difference - mean) >= std::abs(real); });
  return static_cast<double>(further + 1) / static_cast<double>(differences.size() + 1);
}

}  // namespace

std::vector<ScoreRange> TextMetrics::ranges() const {
  Draws draws;
  std::vector<double> sums(width_);
  for (size_t set = 0; set < kSets && answers() > 0; set++) {
    std::ranges::fill(sums, 0);
    for (size_t i = 0; i < answers(); i++)
      std::ranges::transform(row(drawn(set, i, answers())), sums, sums.begin(), std::plus());
    for (const auto& [name, value] : scores_of(sums, static_cast<double>(answers())))
      draws[name].push_back(value);
  }
  std::vector<ScoreRange> out;
  for (const auto& [name, value] : values()) {
    const auto [low, high] = middle_of(draws.at(name));
    out.push_back({name, low, high});
  }
  return out;
}

std::vector<ScoreDifference> compare(const TextMetrics& a, const TextMetrics& b) {
  const size_t answers = std::min(a.answers(), b.answers());
  Draws differences;
  std::vector<double> of_a(a.width_), of_b(b.width_);
  for (size_t set = 0; set < kSets && answers > 0; set++) {
    std::ranges::fill(of_a, 0);
    std::ranges::fill(of_b, 0);
    for (size_t i = 0; i < answers; i++) {
      const size_t answer = drawn(set, i, answers);
      std::ranges::transform(a.row(answer), of_a, of_a.begin(), std::plus());
      std::ranges::transform(b.row(answer), of_b, of_b.begin(), std::plus());
    }
    const Scores first = a.scores_of(of_a, static_cast<double>(answers)),
                 second = b.scores_of(of_b, static_cast<double>(answers));
    for (size_t i = 0; i < std::min(first.size(), second.size()); i++) {
      if (first[i].first == second[i].first)
        differences[first[i].first].push_back(first[i].second - second[i].second);
    }
  }
  std::vector<ScoreDifference> out;
  const Scores first = a.values(), second = b.values();
  for (size_t i = 0; i < std::min(first.size(), second.size()); i++) {
    const auto& [name, value] = first[i];
    if (!differences.contains(name)) continue;
    const auto [low, high] = middle_of(differences.at(name));
    out.push_back(
        {name, value, second[i].second, low, high, p_value(differences.at(name), value - second[i].second)});
  }
  return out;
}

}  // namespace trainer
