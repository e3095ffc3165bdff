// The objective: what a step optimises, and what a step and an evaluation report.
//
// A step is always the same passes: each micro-batch gives the sum of its tokens' losses, each multiplied by
// the weight of its token (MicroBatch::supervised_weights), and its backward pass starts from 1 / normaliser.
// The normaliser is known before the first pass and counts the samples of all ranks. So the gradient does not
// depend on how the effective batch is split, repeated after an out-of-memory error, or shared among ranks.
// An objective says what the head computes of a token, what the normaliser is, and what the sums are called.
//
// How losses that compare sequences fit in (DPO, ORPO, KTO; none is built). They optimise a function of the
// log-probability of whole sequences, s = sum of log p(token). Their gradient is that of a weighted
// cross-entropy: of sum over sequences of -w s, where w = -dL/ds at the current weights of the model is a
// constant. So such an objective needs, in this order:
//   1. An encoder that makes several samples of a row, with one Sample::group. No micro-batch split and no
//      shares of ranks part them.
//   2. A pass without gradients before the others: the step's micro-batches with
//      LossOptions::log_probabilities, added up by slot. Dropout follows from slot and position, so this pass
//      and the later ones see the same masks. The reference model's sums come from the same pass with the
//      adapter off, or are stored with the rows.
//   3. A function of the objective from these sums to one weight for each sample, by which Sample::weights
//      are multiplied. DPO: with d = s - s_reference of the chosen minus that of the rejected answer,
//      w = b sigmoid(-b d) for the chosen and minus that for the rejected one; ORPO: of the chosen one,
//      1 / tokens more; KTO: with a constant that the mean over the batch gives. The normaliser is the number
//      of groups.
//   4. What to report: the loss itself follows from the sums of 2, and takes the place of the sum of the
//      passes; margins and accuracies beside it.
// The passes, their splits and what they report to each other stay as they are.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/config/config.h"
#include "trainer/data/sample.h"
#include "trainer/ops/linear_cross_entropy.h"

namespace trainer {

enum class Pass { training, evaluation };

// A sum over the supervised tokens of a batch, of which the mean is reported.
struct Term {
  std::string name;          // in the metrics; the loss is "loss"
  bool over_tokens = false;  // the mean is over the number of supervised tokens instead of the normaliser
};

class Objective {
 public:
  virtual ~Objective() = default;

  // Returns what the head computes of each token.
  virtual LossOptions options(Pass pass) const = 0;
  // Returns what the sums over these samples are divided by; 0 if nothing is supervised. That of several
  // batches is the sum of theirs.
  virtual double normaliser(std::span<const Sample> samples, bool encoder_decoder) const = 0;
  // Returns what is reported. The first term is the loss.
  virtual std::vector<Term> terms(Pass pass) const = 0;
  // Returns the sums of a micro-batch, scalars in the order of terms().
  virtual std::vector<at::Tensor> sums(const LossSum& out, Pass pass) const = 0;
};

// Sums over what was computed so far, in the order of Objective::terms(): fp64 scalars on the device, for
// which the host never waits here.
class TermSums {
 public:
  TermSums() = default;
  TermSums(const Objective& objective, Pass pass, at::Device device);
  void add(const LossSum& micro_batch);
  const std::vector<at::Tensor>& values() const { return values_; }

 private:
  const Objective* objective_ = nullptr;
  Pass pass_ = Pass::training;
  std::vector<at::Tensor> values_;
};

// The means that sums give, by name.
using Means = std::vector<std::pair<std::string, double>>;
// Returns them in the order of the terms: the loss is the first. Sums over all ranks give the mean over all
// of them.
Means means_of(const Objective& objective, Pass pass, const std::vector<double>& sums, double normaliser,
               int64_t supervised_tokens);

// Returns sum / normaliser; the sum itself, which is 0, if nothing is supervised.
inline double mean_of(double sum, double normaliser) { return normaliser > 0 ? sum / normaliser : sum; }

// The objective of a run. Cross-entropy: the mean of the supervised tokens' losses, by their weights, with
// training.label_smoothing and training.z_loss; evaluation is without both.
std::unique_ptr<Objective> make_objective(const Config& config);

}  // namespace trainer
