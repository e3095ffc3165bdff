// The packed adapters of one update (ops/packed_adapters.h): its micro-batches, and blocks that run again,
// share them.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ops/packed_adapters.h"

namespace trainer {

// Packed matrices stay in memory from their first use until the update where they are small beside the
// group's input: not more than without this class, where the graph holds them as long as the input, and with
// recomputed blocks a small part of what these keep. Others are packed whenever they are used. The first
// update packs each group alone; later ones begin by packing all that the one before kept, in one launch.
class AdapterPacks {
 public:
  // To be called before the passes of an update, and behind them.
  void begin();
  void end();
  // Drops all, as after running out of memory, or when the adapters have moved to another device.
  void forget() {
    groups_.clear();
    of_first_a_.clear();
  }

  // Returns these adapters packed for products with x [rows, in] in its type.
  PackedAdapters get(const AdapterGroup& adapters, const at::Tensor& x);
  // Returns whether a group's matrices are small beside its input, an eighth at most.
  static bool are_small(const PackedAdapters& packed, const at::Tensor& x);

 private:
  struct Group {
    AdapterGroup adapters;
    at::ScalarType type;
    PackedAdapters packed;  // undefined matrices: between updates
  };
  std::vector<Group> groups_;                 // in the order of their first use
  std::map<const void*, size_t> of_first_a_;  // a group's place by the first of its matrices
};

}  // namespace trainer
