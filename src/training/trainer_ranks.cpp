// Steps with several ranks. The passes, and what is repeated when memory runs out, are each rank's own. No
// sum over the ranks is repeated: what a rank has given to one (gradient_sums.h), it keeps.
#include <algorithm>
#include <cmath>
#include <sstream>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "trainer/base/strings.h"
#include "trainer/memory/summary.h"
#include "trainer/training/trainer.h"

#include "memory/memory_phase.h"
#include "memory/offload.h"
#include "objectives/objective.h"
#include "training/gradient_sums.h"
#include "training/oom_recovery.h"
#include "training/placement.h"
#include "training/step_of_vectors.h"

namespace trainer {
namespace {

// The peak of tensors on this rank and its limit; empty for one rank alone and in a plan.
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

// Computes the gradients of this rank's share and their sums over the ranks. Returns the sums of the share's
// tokens.
TermSums Trainer::accumulate_over_ranks(const EffectiveBatch& batch, MicroBatchSplit& split,
                                        OomRecovery& recovery) {
  TermSums sums;
  const std::vector<std::string> reached = run_on_all_ranks(model_, ranks_, [&] {
    placement_->sums()->during([&] { sums = accumulate(batch, split, recovery); });
    return reached_parameters();
  });
  sum_gradients(reached, recovery);
  return sums;
}

// Returns which parameters have a gradient: a '1' or '0' for each, or nothing if all have one.
std::string Trainer::reached_parameters() const {
  std::string reached;
  for (const TrainedParameter& parameter : parameters_)
    reached += gradients_.get(parameter).defined() ? '1' : '0';
  return reached.find('0') == std::string::npos ? "" : reached;
}

// Adds up what is left. A rank whose share did not reach a parameter adds zeros. A parameter that nobody
// reached gets no gradient, as on one rank. Gradients of parameters that another rank updates are dropped.
void Trainer::sum_gradients(const std::vector<std::string>& reached, OomRecovery& recovery) {
  const at::NoGradGuard no_grad;
  const bool some_lack =
      std::ranges::any_of(reached, [](const std::string& parameters) { return !parameters.empty(); });
  const auto is_reached = [&](size_t i) {
    return std::ranges::any_of(reached, [&](const std::string& r) { return r.empty() || r[i] == '1'; });
  };
  if (some_lack) {
    run_on_all_ranks(ranks_, [&] {
      recovery.repeat("gradients", [&] {
        for (size_t i = 0; i < parameters_.size(); i++)
          if (is_reached(i)) gradients_.make_zeros(parameters_[i]);
      });
    });
  }
  placement_->finish_copies();
  placement_->sums()->all_reduce_rest();
  for (const TrainedParameter& parameter : parameters_)
    if (!placement_->is_updated_here(parameter)) gradients_.drop(parameter);
}

// Returns the norm of the whole gradient. What the objective reports and the norm are the only values that
// are read from the device. They are read before the update, which must not use bad ones.
at::Tensor Trainer::read_loss_and_norm(const EffectiveBatch& batch, const TermSums& sums,
                                       OomRecovery& recovery, StepResult& result) {
  at::Tensor norm;
  const size_t terms = sums.values().size();
  std::vector<double> read(terms + 1, 0.0);  // the sums, then the norm
  const std::vector<std::string> notes = run_on_all_ranks(ranks_, [&] {
    norm = gradient_norm(recovery);
    recovery.repeat("reading the loss", [&] {
      if (device_.is_meta()) return;  // no values exist
      std::vector<at::Tensor> all = sums.values();
      all.push_back(norm.to(all.front().options()));
      const at::Tensor values = at::stack(all).cpu();  // one wait for the device
      std::copy_n(values.const_data_ptr<double>(), read.size(), read.begin());
    });
    return note_of(read);
  });
  if (!ranks_.alone() && !device_.is_meta()) {
    double squares = 0;
    std::ranges::fill(read, 0.0);
    for (const std::string& note : notes) {
      const std::vector<double> of_rank = values_in(note);
      for (size_t term = 0; term < terms; term++) read[term] += of_rank.at(term);
      squares += of_rank.at(terms) * of_rank.at(terms);
    }
    // Undivided, all ranks have the whole gradient. All use the norm of rank 0.
    read[terms] = owners().empty() ? values_in(notes.front()).at(terms) : std::sqrt(squares);
    recovery.repeat("optimizer", [&] {
      norm = at::full({}, read[terms], at::TensorOptions().dtype(at::kFloat).device(device_));
    });
  }
  result.terms =
      means_of(*objective_, Pass::training, read,
               objective_->normaliser(batch.samples, model_.encoder_decoder()), batch.supervised_tokens);
  result.loss = result.terms.front().second;
  result.terms.erase(result.terms.begin());
  result.grad_norm = read[terms];
  if (answers_) report_answers(result);
  if (vectors_ && vectors_->has_compared()) {
    result.terms = vectors_->means();
    result.loss = result.terms.front().second;
    result.terms.erase(result.terms.begin());
  }
  return norm;
}

void Trainer::update(const at::Tensor& norm, StepResult& result, OomRecovery& recovery) {
  updating_ = !ranks_.alone();
  const std::vector<std::string> peaks = run_on_all_ranks(ranks_, [&] {
    recovery.repeat("optimizer", [&] {
      const InPhase phase(MemoryPhase::update);
      optimizer_->step(gradients_, norm, config_.training.max_grad_norm, result.learning_rate);
    });
    return peak_note(ranks_, device_);
  });
  result.highest_peak = highest_peak(peaks);
  count_moved(2 * state_below_);  // read and written
  placement_->broadcast_updates();
  updating_ = false;
  weights_changed();
}

}  // namespace trainer
