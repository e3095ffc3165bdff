// The peak memory of a run, computed before it begins. The run's own step (Trainer::step) runs on tensors of
// `meta`, which have shapes but no memory, and their allocations are counted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/config/config.h"
#include "trainer/optim/optimizer.h"
#include "trainer/training/worst_batch.h"

namespace trainer {

// The device and run that a plan is made for. The device itself is not queried.
struct PlanTarget {
  c10::DeviceType device = c10::kCPU;  // CPU or CUDA
  at::ScalarType dtype = at::kFloat;   // the weights' type
  int64_t vocab_rows = 0;  // rows that the tokenizer needs; 0: the model's, plus one per added token
  SampleLengths lengths;   // the data's, if known
  int64_t ranks = 1;       // ranks that train together; the plan is that of rank 0
};

// Offloaded tensors (memory.offload), in bytes, at the moment when they are most.
struct OffloadedPlan {
  int64_t weights = 0, gradients = 0, optimizer_state = 0, activations = 0;
  int64_t moved = 0;   // bytes that go up or down in a step
  double seconds = 0;  // time for moving them at an assumed rate, if nothing else happens meanwhile

  int64_t total() const { return weights + gradients + optimizer_state + activations; }
};

// Sizes in bytes. The parts are what is in use at the moment of the peak, so that they add up to it.
struct MemoryPlan {
  int64_t weights = 0;  // the model's; mapped frozen weights count with their size in the file
  int64_t adapters = 0;
  int64_t gradients = 0;
  int64_t optimizer_state = 0;
  int64_t activations = 0;  // kept from forward to backward
  int64_t recompute = 0;    // recomputed blocks, and temporary tensors of backward
  int64_t loss = 0;         // logits of a chunk and their gradients
  int64_t input = 0;
  int64_t update = 0;   // temporary tensors of the optimizer
  int64_t reserve = 0;  // outside of tensors: context and workspaces of the GPU's libraries, fragmentation
  OffloadedPlan offloaded;  // not part of the peak

  int64_t batch_size = 0, recompute_blocks = 0, num_blocks = 0;  // those of the plan
  bool light = false;       // blocks that are not recomputed are light (Recompute)
  bool quantised = false;   // frozen weights of blocks are in NF4 or FP8
  bool widen_once = false;  // recomputed blocks widen those once (MemoryConfig)
  Offload offload;
  int64_t sample_tokens = 0;  // tokens of a full-length sample, source and target

  // Returns the peak that the tensor allocator will show.
  int64_t peak() const {
    return weights + adapters + gradients + optimizer_state + activations + recompute + loss + input + update;
  }
  int64_t total() const { return peak() + reserve; }
  // Returns what is recomputed in backward.
  Recompute recompute_setting() const {
    return recompute_blocks > 0 ? Recompute::blocks(recompute_blocks)
           : light              ? Recompute::light()
                                : Recompute(false);
  }

  struct Part {
    std::string name, key;  // "optimizer state", "optimizer_state"
    int64_t bytes;
  };
  // Returns the parts in the order of the table; the reserve is the last one.
  std::vector<Part> parts() const;
  // Returns what is offloaded, part by part.
  std::vector<Part> offloaded_parts() const;
};

// Returns the plan of a run, for the largest micro-batches that the configuration allows
// (training/worst_batch.h). `model`: a model directory (only its config.json is read), or a file like
// config.json (configs/models). Reads no weights and needs no device. `optimizer`: see Trainer. Throws
// FormatError and ConfigError, as the run itself would.
MemoryPlan plan_memory(const Config& config, const std::filesystem::path& model, const PlanTarget& target,
                       const OptimizerFactory& optimizer = make_optimizer);

// Returns how many blocks are recomputed in backward: those of memory.gradient_checkpointing, or all if
// weights are offloaded or sharded, or activations are offloaded, because then a block has its
// weights only while it runs, and what is kept are the inputs of recomputed blocks.
int64_t recomputed_blocks(const Config& config, int64_t ranks, int64_t num_blocks);

// Returns a table with one line for each part that is not 0, for the total, and for what remains of the limit
// (0: none) or is missing.
std::string plan_table(const MemoryPlan& plan, int64_t limit);

}  // namespace trainer
