// The samples among the rows of a batch, as kernels take them (run_table.cuh).
#pragma once

#include <algorithm>
#include <array>

#include "ops/token_runs.h"

namespace trainer {

struct RunTable {
  static constexpr size_t kMost = 256;

  int count = 0;
  std::array<int, kMost> first{}, tokens{};
  std::array<int, kMost + 1> tiles{};

  int64_t all_tiles() const { return tiles[static_cast<size_t>(count)]; }
};

inline int64_t tiles_of(const TokenRun& run, int64_t tile) { return (run.tokens + tile - 1) / tile; }

// Calls body(table, number of its first run, number of its first tile) for all runs, whose tiles have `tile`
// tokens. That is once but for hundreds of short samples.
template <class Body>
void for_run_tables(const TokenRuns& runs, int64_t tile, const Body& body) {
  int64_t tiles_before = 0;
  for (size_t begin = 0; begin < runs.size(); begin += RunTable::kMost) {
    const size_t count = std::min(RunTable::kMost, runs.size() - begin);
    RunTable table;
    table.count = static_cast<int>(count);
    for (size_t i = 0; i < count; i++) {
      const TokenRun& run = runs[begin + i];
      table.first[i] = static_cast<int>(run.first);
      table.tokens[i] = static_cast<int>(run.tokens);
      table.tiles[i + 1] = table.tiles[i] + static_cast<int>(tiles_of(run, tile));
    }
    body(table, static_cast<int64_t>(begin), tiles_before);
    tiles_before += table.all_tiles();
  }
}

inline int64_t all_tiles(const TokenRuns& runs, int64_t tile) {
  int64_t sum = 0;
  for (const TokenRun& run : runs) sum += tiles_of(run, tile);
  return sum;
}

}  // namespace trainer
