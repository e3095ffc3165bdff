// The placement of a trainer's tensors: on which device or file they lie, and which rank has them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/models/model.h"
#include "trainer/optim/gradients.h"
#include "trainer/parallel/ranks.h"
#include "trainer/parallel/tensor_exchange.h"

namespace trainer {

class BlockSource;
class BlockStore;
class CopyStream;
class GradientSums;
class KeptInputs;

// Returns the rank that has each of the weights that are sharded, by name; nothing without
// parallel.shard: all, and for one rank alone.
std::map<std::string, int64_t> sharded_weights(const Ranks& ranks, const Config& config, Model& model);

// Returns the rank of each parameter, that of a sharded one being the rank that has it, so that all have
// about as many elements; nothing when every rank updates all, which is so for one rank alone, for
// parallel.shard: none, and by default for LoRA.
std::map<std::string, int64_t> owners_among(const Ranks& ranks, const Config& config,
                                            const std::map<std::string, int64_t>& sharded,
                                            const std::vector<TrainedParameter>& parameters);

// Does work in which the model runs. When it is done, or has failed, this rank gives the others weights until
// theirs is done, too (parallel.shard: all).
void run_and_lend(const Model& model, const std::function<void()>& work);

// run_on_all_ranks() for work in which the model runs.
template <class Work>
auto run_on_all_ranks(const Model& model, const Ranks& ranks, const Work& work,
                      Channel channel = Channel::steps) {
  const auto run = [&] {
    if constexpr (std::is_void_v<std::invoke_result_t<Work>>) {
      run_and_lend(model, work);
    } else {
      std::string note;
      run_and_lend(model, [&] { note = work(); });
      return note;
    }
  };
  return run_on_all_ranks(ranks, run, channel);
}

// While it lives, the blocks of the model find their weights when they run, on whichever device the trainer
// is, and each parameter is updated by one rank, or by all in the same way.
class Placement {
 public:
  // Makes what memory.offload and parallel.shard need: buffers for the weights of blocks, and the connection
  // on which tensors travel between ranks. All ranks must call it. The arguments must outlive it.
  Placement(const Config& config, Model& model, at::Device device, const Ranks& ranks,
            const std::vector<TrainedParameter>& parameters, Gradients& gradients);
  ~Placement();
  Placement(const Placement&) = delete;
  Placement& operator=(const Placement&) = delete;

  // The ranks that update the parameters, by name; empty: every rank updates all.
  const std::map<std::string, int64_t>& owners() const { return owners_; }
  // The ranks that have weights of which others have none, trained or not; empty: all have all.
  const std::map<std::string, int64_t>& sharded() const { return sharded_; }
  bool is_updated_here(const TrainedParameter& parameter) const;
  // Returns the parameters that this rank updates, with values that a kernel of the device can reach.
  std::vector<TrainedParameter> updated_here() const;

  // Returns whether blocks have their weights only while they run, so that all of them must be recomputed.
  bool lends_weights() const { return block_store_ != nullptr; }
  // Returns the store of recomputed blocks' inputs; null: they stay on the device.
  const std::shared_ptr<KeptInputs>& kept_inputs() const { return kept_inputs_; }
  // The sums of gradients over the ranks; null for one rank alone.
  GradientSums* sums() { return sums_.get(); }

  // To be called when weights have changed, so that no block uses an old copy.
  void weights_changed();
  // Gives all ranks what each has updated.
  void broadcast_updates() const;
  // Waits for the copies that are under way.
  void finish_copies();
  // Moves the model's weights, in place, because optimizer, gradients and adapters refer to the same tensors.
  // When it throws, each is complete on one of the two devices.
  void move_to(at::Device device);

 private:
  void lend_offloaded_weights();
  void lend_sharded_weights();
  void lend_weights_of(std::unique_ptr<BlockSource> source);
  std::optional<int64_t> owner_of(const TrainedParameter& parameter) const;

  const Config& config_;
  Model& model_;
  const Ranks& ranks_;
  const std::vector<TrainedParameter>& parameters_;
  std::map<std::string, int64_t> sharded_, owners_;
  std::shared_ptr<CopyStream> copies_;  // copies of offloaded tensors
  std::vector<TrainedParameter> seen_;  // parameters_, as the device sees them
  TensorExchange exchange_;
  std::unique_ptr<GradientSums> sums_;
  std::shared_ptr<BlockStore> block_store_;  // null: weights are neither offloaded nor sharded
  std::shared_ptr<KeptInputs> kept_inputs_;
};

}  // namespace trainer
