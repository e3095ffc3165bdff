// Loss and token accuracy over a data set, during training and in `trainer eval`.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/config/config.h"
#include "trainer/data/batching.h"
#include "trainer/data/dataset.h"
#include "trainer/models/model.h"
#include "trainer/parallel/ranks.h"
#include "trainer/training/recovery.h"

namespace trainer {

// How the classes of a data set were told apart.
struct Confusion {
  std::vector<std::string> classes;
  std::vector<std::vector<int64_t>> rows;  // [label][prediction]
  std::vector<double> f1;                  // of each class
};

struct EvaluationResult {
  double loss =
      0;  // mean over all supervised tokens, by their weights; of answers that are compared: over rows
  bool of_tokens = true;  // so that it has a perplexity
  int64_t samples = 0, supervised_tokens = 0;
  // The objective's other means, by their names in metrics.jsonl without "eval_": "token_accuracy".
  std::vector<std::pair<std::string, double>> terms = {};
  std::optional<Confusion> confusion = std::nullopt;  // of objective.name: classification
};

// Evaluates in micro-batches of eval_batch_size, without dropout, label smoothing and z-loss. When out of
// memory, it continues in smaller micro-batches, which `budget` remembers. `between` is called before each
// micro-batch; it may throw to end the evaluation. Throws OutOfMemoryError when a single sample does not fit.
// Several ranks divide the samples, and all get the whole result; an error of one ends the evaluation of all,
// as run_on_all_ranks() says.
//
// Where answers are compared or judged, the reference's log-probabilities are those of the samples
// (Sample::reference), or else of the model without its adapter. Throws ConfigError if there is neither.
EvaluationResult evaluate(Model& model, const Dataset& dataset, const Config& config, at::Device device,
                          BatchBudget& budget, const RecoveryListener& listener = {},
                          const std::function<void()>& between = {}, const Ranks& ranks = Ranks::none());

// The limits by which samples are split into micro-batches of this size, and the layout of a micro-batch.
CutLimits cut_limits(const Config& config, bool encoder_decoder, int64_t batch_size);
CollateOptions collate_options(const Config& config, const Model& model, uint64_t random_key = 0);

// Sets data.packing: auto to false where packing may be slower: on a GPU, if the model does not pack there
// (Model::packs_on_gpu()).
void settle_packing(Config& config, const Model& model, at::DeviceType device);

}  // namespace trainer
