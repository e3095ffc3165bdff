// Makes the trained model of a loaded one, and checks that training then changes the right tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/config/config.h"
#include "trainer/formats/peft.h"
#include "trainer/models/load_model.h"
#include "trainer/models/model.h"

namespace trainer {

// Sets the dropout, resizes the vocabulary to `vocab_rows` rows if tokens were added, and adds the adapter.
// Returns the adapter's settings as they are saved, or nothing in full fine-tuning. Works for a model on meta
// too (models/load_model.h). Throws ConfigError when the configuration asks for something that this model
// does not have.
std::optional<AdapterConfig> prepare_for_training(Model& model, const Config& config, int64_t vocab_rows,
                                                  at::Device device);

// Returns how the model's weights are quantised; nothing without model.quantize. Modules that are saved with
// the adapter stay dense.
std::optional<Quantisation> quantisation_of(const Config& config);

// Returns the head that scores texts which the objective needs; nullopt for one that learns to write them.
// Its labels are those of the data, once they are known.
std::optional<ScoreHeadSpec> score_head_for(const Config& config);

// Returns whether the weights of blocks are sharded among so many ranks (parallel.shard: all).
bool shards_weights(const Config& config, int64_t ranks);

// Checks after the first update that the trained tensors have changed, and the frozen ones have not.
class UpdateCheck {
 public:
  // Remembers up to 4,096 elements of every tensor, spread over it.
  explicit UpdateCheck(Model& model);

  // Returns a line for the log. Throws NumericsError when no trained tensor has changed (a `learning_rate`
  // above 0 was applied), or a frozen one has. A tensor whose gradient was zero (LoRA's A while B is zero)
  // may stay the same.
  std::string after_update(double learning_rate) const;

 private:
  struct Seen {
    std::string name;
    at::Tensor value, sample;
  };
  static at::Tensor sample_of(const at::Tensor& tensor);
  std::vector<Seen> trained_, frozen_;
};

}  // namespace trainer
