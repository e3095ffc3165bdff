// What a step does among several ranks. The passes, and what is repeated when memory runs out, are each
// rank's own. No sum over the ranks is repeated: what a rank has given to one (gradient_sums.h), it keeps.
#include <cmath>
#include <sstream>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "trainer/base/strings.h"
#include "trainer/memory/summary.h"
#include "trainer/training/trainer.h"

#include "memory/copy_stream.h"
#include "memory/memory_phase.h"
#include "memory/offload.h"
#include "models/block_hook.h"
#include "objectives/objective.h"
#include "parallel/rank_shares.h"
#include "training/attempts.h"
#include "training/gradient_sums.h"
#include "training/rank_owners.h"
#include "training/with_blocks_together.h"
#include "weights/block_store.h"

namespace trainer {
namespace {

// The peak of tensors on this rank and its limit; nothing to tell for one rank alone and in a plan.
std::string peak_note(const Ranks& ranks, at::Device device) {
  if (ranks.alone() || device.is_meta()) return "";
  const MemorySummary memory = memory_summary(device);
  return concat(memory.peak, " ", memory.limit);
}

std::optional<HighestPeak> highest_peak(const std::vector<std::string>& notes) {
  std::optional<HighestPeak> highest;
  for (size_t rank = 0; rank < notes.size(); rank++) {
    if (notes[rank].empty()) continue;
    HighestPeak own{static_cast<int64_t>(rank)};
    std::istringstream(notes[rank]) >> own.peak >> own.limit;
    if (!highest || own.peak > highest->peak) highest = own;
  }
  return highest;
}

}  // namespace

std::vector<std::string> with_blocks_together(const Model& model, const Ranks& ranks,
                                              const std::function<std::string()>& work, Channel channel) {
  const auto* hook = dynamic_cast<const BlockHook*>(&model);
  if (hook == nullptr || !hook->after_share) return together(ranks, work, channel);
  return together(
      ranks,
      [&] {
        std::string note;
        try {
          note = work();
        } catch (...) {
          hook->after_share();
          throw;
        }
        hook->after_share();
        return note;
      },
      channel);
}

std::map<std::string, int64_t> divided_weights(const Ranks& ranks, const Config& config, Model& model) {
  std::map<std::string, int64_t> divided;
  if (ranks.alone() || config.parallel.shard != Shard::all) return divided;
  const std::map<const Parameter*, int64_t> owners = shard_weights(model.blocks(), ranks.count());
  model.for_each_parameter([&](const std::string& name, Parameter& parameter) {
    if (const auto owner = owners.find(&parameter); owner != owners.end()) divided[name] = owner->second;
  });
  return divided;
}

std::map<std::string, int64_t> owners_among(const Ranks& ranks, const Config& config,
                                            const std::map<std::string, int64_t>& divided,
                                            const std::vector<TrainedParameter>& parameters) {
  const Shard shard = config.parallel.shard;
  const bool divides =
      shard == Shard::optimizer || shard == Shard::all || (shard == Shard::automatic && !config.lora);
  std::map<std::string, int64_t> owners;
  if (ranks.alone() || !divides) return owners;
  std::vector<int64_t> elements, loads(static_cast<size_t>(ranks.count()), 0);
  std::vector<std::string> names;
  for (const TrainedParameter& parameter : parameters) {
    if (const auto owner = divided.find(parameter.name); owner != divided.end()) {
      owners[parameter.name] = owner->second;
      loads[static_cast<size_t>(owner->second)] += parameter.value.numel();
    } else {
      names.push_back(parameter.name);
      elements.push_back(parameter.value.numel());
    }
  }
  const std::vector<int64_t> others = divide_among(ranks.count(), elements, loads);
  for (size_t i = 0; i < names.size(); i++) owners[names[i]] = others[i];
  return owners;
}

int64_t bytes_exchanged(const std::vector<TrainedParameter>& parameters, StateDtype gradients) {
  int64_t bytes = 0;
  for (const TrainedParameter& parameter : parameters) {
    const int64_t size = gradients == StateDtype::fp32 ? 4 : parameter.value.element_size();
    bytes += parameter.value.numel() * size;
  }
  return bytes;
}

std::optional<int64_t> Trainer::owner_of(const TrainedParameter& parameter) const {
  return owners_.empty() ? std::nullopt : std::optional(owners_.at(parameter.name));
}

// Computes the gradients of this rank's share and their sums over the ranks. Returns the sum of the token
// losses of the share.
at::Tensor Trainer::accumulate_everywhere(const EffectiveBatch& batch, Division& division,
                                          Attempts& attempts) {
  at::Tensor loss_sum;
  const std::vector<std::string> reached = with_blocks_together(model_, ranks_, [&] {
    const auto share = [&] { loss_sum = accumulate(batch, division, attempts); };
    sums_ ? sums_->during(share) : share();
    return reached_parameters();
  });
  if (sums_) add_up_gradients(reached, attempts);
  return loss_sum;
}

// Which parameters have a gradient: a '1' or '0' for each, or nothing if all have one.
std::string Trainer::reached_parameters() const {
  std::string reached;
  for (const TrainedParameter& parameter : parameters_)
    reached += gradients_.get(parameter).defined() ? '1' : '0';
  return reached.find('0') == std::string::npos ? "" : reached;
}

// Adds up what is left. A rank whose share did not reach a parameter adds zeros. A parameter that nobody
// reached gets no gradient, as on one rank. Gradients of parameters that another rank updates are dropped.
void Trainer::add_up_gradients(const std::vector<std::string>& reached, Attempts& attempts) {
  const at::NoGradGuard no_grad;
  const bool some_lack =
      std::ranges::any_of(reached, [](const std::string& parameters) { return !parameters.empty(); });
  const auto is_reached = [&](size_t i) {
    return std::ranges::any_of(reached, [&](const std::string& r) { return r.empty() || r[i] == '1'; });
  };
  if (some_lack) {
    together(ranks_, [&] {
      attempts.repeat("gradients", [&] {
        for (size_t i = 0; i < parameters_.size(); i++)
          if (is_reached(i)) gradients_.make_zeros(parameters_[i]);
      });
      return std::string();
    });
  }
  copies_->finish();
  sums_->add_up_rest();
  for (const TrainedParameter& parameter : parameters_) {
    if (owner_of(parameter).value_or(ranks_.rank()) != ranks_.rank()) gradients_.drop(parameter);
  }
}

// Returns the norm of the whole gradient. Loss and norm are the only values that are read from the device.
// They are read before the update, which must not use bad ones.
at::Tensor Trainer::read_loss_and_norm(const EffectiveBatch& batch, const at::Tensor& loss_sum,
                                       Attempts& attempts, StepResult& result) {
  at::Tensor norm;
  std::vector<double> read{0, 0};
  const std::vector<std::string> notes = together(ranks_, [&] {
    norm = gradient_norm(attempts);
    attempts.repeat("reading the loss", [&] {
      if (device_.is_meta()) return;  // no values exist
      const at::Tensor both =
          at::stack({loss_sum, norm.to(loss_sum.options())}).cpu();  // one wait for the device
      const double* values = both.const_data_ptr<double>();
      read = {values[0], values[1]};
    });
    return note_of(read);
  });
  if (!ranks_.alone() && !device_.is_meta()) {
    double squares = 0;
    read[0] = 0;
    for (const std::string& note : notes) {
      const std::vector<double> of_rank = values_in(note);
      read[0] += of_rank.at(0);
      squares += of_rank.at(1) * of_rank.at(1);
    }
    // Undivided, all ranks have the whole gradient. All use the norm of rank 0.
    read[1] = owners_.empty() ? values_in(notes.front()).at(1) : std::sqrt(squares);
    attempts.repeat("optimizer", [&] {
      norm = at::full({}, read[1], at::TensorOptions().dtype(at::kFloat).device(device_));
    });
  }
  result.loss =
      mean_of(read[0], make_objective(config_)->normaliser(batch.samples, model_.encoder_decoder()));
  result.grad_norm = read[1];
  return norm;
}

void Trainer::update(const at::Tensor& norm, StepResult& result, Attempts& attempts) {
  updating_ = !ranks_.alone();
  const std::vector<std::string> peaks = together(ranks_, [&] {
    attempts.repeat("optimizer", [&] {
      const InPhase phase(MemoryPhase::update);
      optimizer_->step(gradients_, norm, config_.training.max_grad_norm, result.learning_rate);
    });
    return peak_note(ranks_, device_);
  });
  result.highest_peak = highest_peak(peaks);
  count_moved(2 * state_below_);  // read and written
  if (!owners_.empty()) {
    std::vector<SharedTensor> weights;
    for (const TrainedParameter& parameter : seen_) {
      if (!divided_.contains(parameter.name)) weights.push_back({parameter.value, owner_of(parameter)});
    }
    exchange_.copy(weights);
  }
  updating_ = false;
  weights_changed();
}

}  // namespace trainer
