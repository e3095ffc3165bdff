// AdamW with both moments in 8 bits (Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization"),
// the equal of AdamW8bit of bitsandbytes: csrc/kernels.cu, kOptimizerStatic8bit2StateBlockwise.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/config/config.h"
#include "trainer/optim/adamw.h"
#include "trainer/optim/optimizer.h"

namespace trainer {

// So many elements, in the order of memory, have one scale: their largest absolute value.
inline constexpr int64_t kAdamw8bitBlock = 256;
inline int64_t adamw_8bit_blocks(int64_t elements) {
  return (elements + kAdamw8bitBlock - 1) / kAdamw8bitBlock;
}

// The tensors of an update. A moment is the value of its code in the dynamic map (formats/dynamic_map.h)
// times the scale of its block.
struct Adamw8bitTensors {
  at::Tensor weight;               // fp32 or bf16
  at::Tensor gradient;             // fp32 or bf16, of the same shape
  at::Tensor exp_avg, exp_avg_sq;  // codes, uint8 of the same shape; the map with and without a sign
  at::Tensor exp_avg_absmax, exp_avg_sq_absmax;  // scales, fp32 [blocks]
  at::Tensor master;  // fp32 or undefined. If defined, it is updated, and weight gets its rounded value
};

// One tensor of a step. Each has its own decay and key.
struct Adamw8bitItem {
  Adamw8bitTensors tensors;
  AdamwUpdate update;
};

// Updates all tensors, which are on one device, like adamw_update(). The update is that of the moments before
// they are quantised again. Weight decay comes after it, as in bitsandbytes.
void adamw_8bit_update(const std::vector<Adamw8bitItem>& items, const at::Tensor& gradient_scale,
                       AdamwProgress& progress);

// The form for a GPU: src/optim/adamw_8bit.cu, one launch for all tensors of the same types. It allocates
// before the first launch.
void adamw_8bit_update_gpu(const std::vector<Adamw8bitItem>& items, const at::Tensor& gradient_scale,
                           AdamwProgress& progress);

// Keeps the codes "exp_avg" and "exp_avg_sq", their scales "exp_avg_absmax" and "exp_avg_sq_absmax" and, with
// master weights, "master" of each parameter. Embeddings and parameters of less than `fewest_coded` elements
// have AdamW's state and update instead, in fp32 or, if optimizer.state_dtype says so, bf16.
class AdamW8bit final : public Optimizer {
 public:
  static constexpr int64_t kFewestCoded = 4096;  // min_8bit_size of bitsandbytes

  AdamW8bit(std::vector<TrainedParameter> parameters, const OptimizerConfig& config, uint64_t seed,
            int64_t fewest_coded = kFewestCoded);

  std::string name() const override { return "adamw_8bit"; }
  void step(const Gradients& gradients, const at::Tensor& norm, double max_grad_norm,
            double learning_rate) override;
  bool half_written() const override;
  void rehearse(const Gradients& gradients, const at::Tensor& norm, double max_grad_norm) override;
  void move_to(at::Device device) override;
  OptimizerTensors tensors() const override;

 private:
  struct State {
    at::Tensor exp_avg, exp_avg_sq, exp_avg_absmax, exp_avg_sq_absmax, master;
  };
  // The progress of a step: first all tensors with AdamW's state, then those with codes.
  struct Progress {
    AdamwProgress wide, coded;
  };
  bool has_codes(const TrainedParameter& parameter) const;
  State state_for(const TrainedParameter& parameter) const;
  void update(const Gradients& gradients, const at::Tensor& norm, double max_grad_norm, double learning_rate,
              Progress& progress);

  std::vector<TrainedParameter> parameters_;
  OptimizerConfig config_;
  uint64_t seed_;
  int64_t fewest_coded_;
  std::vector<State> states_;
  Progress progress_;
  // Separate, so that an interrupted rehearsal does not affect the step after it.
  Progress rehearsal_;
};

}  // namespace trainer
