// The objective: what a step optimises, and what a step and an evaluation report.
//
// A step is always the same passes: each micro-batch gives the sum of its tokens' losses, each multiplied by
// the weight of its token (MicroBatch::supervised_weights), and its backward pass starts from 1 / normaliser.
// The normaliser is known before the first pass and counts the samples of all ranks. So the gradient does not
// depend on how the effective batch is split, repeated after an out-of-memory error, or shared among ranks.
// An objective says what the head computes of a token, what the normaliser is, and what the sums are called.
//
// Losses of whole answers (DPO, ORPO, KTO) are not sums over tokens: answers.h.
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
// training.label_smoothing, z_loss and focal_gamma, and of distill the divergence from a teacher; the loss of
// an evaluation is without all of them. Of labels of whole texts it is the mean of theirs.
std::unique_ptr<Objective> make_objective(const Config& config);

}  // namespace trainer
