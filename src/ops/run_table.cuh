// Where the samples lie among the rows of a batch, for kernels whose blocks have a tile of one sample's
// tokens. Filled by src/ops/run_table.h.
#pragma once
#include "device/prelude.cuh"

constexpr int kTableRuns = 256;

// It is an argument of a kernel, so that nothing is copied to the GPU before a launch.
struct RunTable {
  int count;
  int first[kTableRuns], tokens[kTableRuns];
  int tiles[kTableRuns + 1];  // the number of a run's first tile, and of tiles in all
};

// The run to which a tile belongs.
DEVICE int run_of_tile(const RunTable& runs, int tile) {
  int run = 0, last = runs.count - 1;
  while (run < last) {
    const int middle = (run + last + 1) / 2;
    if (runs.tiles[middle] <= tile) {
      run = middle;
    } else {
      last = middle - 1;
    }
  }
  return run;
}
