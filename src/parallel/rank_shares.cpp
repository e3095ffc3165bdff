#include "parallel/rank_shares.h"

#include <algorithm>
#include <numeric>

namespace trainer {

std::vector<int64_t> divide_among(int64_t ranks, const std::vector<int64_t>& costs,
                                  std::vector<int64_t> load) {
  std::vector<size_t> order(costs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater{}, [&](size_t i) { return costs[i]; });
  load.resize(static_cast<size_t>(ranks), 0);
  std::vector<int64_t> things(load.size(), 0), owner(costs.size(), 0);
  for (const size_t i : order) {
    // The least load, and among equal loads the fewest things, so that samples without tokens spread too.
    size_t least = 0;
    for (size_t rank = 1; rank < load.size(); rank++) {
      if (std::pair(load[rank], things[rank]) < std::pair(load[least], things[least])) least = rank;
    }
    owner[i] = static_cast<int64_t>(least);
    load[least] += costs[i];
    things[least]++;
  }
  return owner;
}

}  // namespace trainer
