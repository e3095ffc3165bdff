// The bytes that the ranks of a run send each other in a step, and the time for that, estimated before a
// run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/training/plan.h"

#include "config/cards.h"

namespace trainer {

// Returns how many samples of a step are one rank's, if all are equally long, and in how many micro-batches.
int64_t share_of_a_rank(const Config& config, int64_t ranks);
int64_t micro_batches_of_a_rank(const Config& config, int64_t ranks, int64_t batch_size);

struct RankTraffic {
  bool shards_state = false;    // the optimizer's state is sharded (parallel.shard)
  bool shards_weights = false;  // the weights of blocks, too
  // Bytes that each rank sends, and receives, for an update. A sum that all have: 2 (N - 1) / N of the
  // gradients (Patarasuk and Yuan 2009, ring all-reduce). With `shards_state`, (N - 1) / N of the gradients
  // to their owners, and as much of the weights back, except of sharded ones.
  int64_t sent = 0;
  // Bytes of `sent` that may travel during the last backward pass: sums of gradients, but for those of
  // embedding tables and offloaded ones (docs/parallel.md); none with `shards_weights`.
  int64_t early = 0;
  // With `shards_weights`, bytes that move for each micro-batch besides, counted at the rank that sends or
  // receives most of a block: each block is fetched for the forward pass and for the backward pass.
  int64_t fetched = 0;

  // Returns what a rank sends in a step, in micro-batches of this size.
  int64_t in_step(const Config& config, int64_t ranks, int64_t batch_size) const;
};

// Returns what the ranks of PlanTarget::ranks send. Takes and throws the same as plan_memory().
RankTraffic rank_traffic(const Config& config, const std::filesystem::path& model, const PlanTarget& target);

// A kind of connection between GPUs. The rate is assumed, in bytes a second that each GPU sends while all do.
struct Link {
  const char* key;   // "pcie"
  const char* name;  // "PCIe 4.0, from GPU to GPU"
  double rate;
};

// Returns the connections that GPUs may have, the fastest first: those within a machine, or, with several
// machines, networks. The GPUs of a machine share its network, and a ring enters and leaves a machine once,
// so that the network's rate is also that of each GPU.
std::vector<Link> links_for(const Cards& cards);

}  // namespace trainer
