// What a run will need at its peak, known before it begins: the run's own step (Trainer::step) is made on
// tensors of `meta`, which have shapes and no memory, and their allocations are counted.
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

// What a plan is for. Nothing of the device itself is asked.
struct PlanTarget {
  c10::DeviceType device = c10::kCPU;  // CPU or CUDA
  at::ScalarType dtype = at::kFloat;   // of the weights
  int64_t vocab_rows = 0;  // that the tokenizer needs; 0: the model's and one for each added token
  LongestSample longest;   // of the data, where it is known
};

// In bytes. The parts are those in use at the moment of the peak, so that they add up to it.
struct MemoryPlan {
  int64_t weights = 0;  // of the model; frozen ones at their size in the file where they are mapped
  int64_t adapters = 0;
  int64_t gradients = 0;
  int64_t optimizer_state = 0;
  int64_t activations = 0;  // kept from forward to backward
  int64_t recompute = 0;    // of blocks that run again, and what backward holds for a moment
  int64_t loss = 0;         // logits of a chunk and the gradients made with them
  int64_t input = 0;
  int64_t update = 0;   // what the optimizer holds for a moment
  int64_t reserve = 0;  // outside of tensors: context and workspaces of the GPU's libraries, fragmentation

  int64_t batch_size = 0, recompute_blocks = 0, num_blocks = 0;  // of the plan
  int64_t sample_tokens = 0;  // of a sample of full length, source and target

  // What the allocator of tensors will show.
  int64_t peak() const {
    return weights + adapters + gradients + optimizer_state + activations + recompute + loss + input + update;
  }
  int64_t total() const { return peak() + reserve; }

  struct Part {
    std::string name, key;  // "optimizer state", "optimizer_state"
    int64_t bytes;
  };
  // In the order of tables; the reserve is the last one.
  std::vector<Part> parts() const;
};

// The plan of a run: of the largest micro-batches that the configuration allows (training/worst_batch.h).
// `model`: a model directory, of which only config.json is needed, or a file like it (configs/models). Reads
// no weights and needs no device. `optimizer`: as Trainer has it. Throws FormatError and ConfigError as the
// run itself would.
MemoryPlan plan_memory(const Config& config, const std::filesystem::path& model, const PlanTarget& target,
                       const OptimizerFactory& optimizer = make_optimizer);

// The parts that are not 0, the total, and what remains of the limit (0: none) or is missing: a line each.
std::string plan_table(const MemoryPlan& plan, int64_t limit);

}  // namespace trainer
