// The parts of a run, created in the order of the members and destroyed in reverse.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "trainer/base/rank_place.h"
#include "trainer/config/config.h"
#include "trainer/data/batching.h"
#include "trainer/data/dataset.h"
#include "trainer/device/acquire_device.h"
#include "trainer/parallel/ranks.h"
#include "trainer/run/run_length.h"
#include "trainer/text/tokenizer.h"
#include "trainer/training/predictions.h"
#include "trainer/training/trainer.h"

#include "run/output_directory.h"
#include "run/resume.h"
#include "run/run_model.h"
#include "run/run_plan.h"

namespace trainer {

struct RunParts {
  // Takes the device, opens the data, loads the model and plans the memory. Writes nothing into `output`,
  // which, like `ranks`, must outlive it. Throws the errors of each of these.
  RunParts(const Config& from_user, OutputDirectory& output, const Resumption& start,
           const Ranks& ranks = Ranks::none(), const RankPlace& place = {});
  RunParts(const RunParts&) = delete;
  RunParts& operator=(const RunParts&) = delete;

  const Dataset* eval_data() const { return eval ? &*eval : nullptr; }
  Model& model() { return *prepared.model; }
  // Returns what the run's memory is planned for.
  PlanTarget plan_target() const;
  // Return the budgets that recovery has learned, to be saved, and restore them. restore_budgets() returns
  // false when they no longer apply because sizes or limits have changed.
  std::map<std::string, int64_t> learned_budgets();
  bool restore_budgets(const RunPosition& position);

  OutputDirectory& output;
  const Ranks& ranks;
  Config asked;  // the configuration as it was given, with the dtype and the date that the run began with
  DeviceLease lease;
  at::Device device;       // the device that the run uses now
  bool has_moved = false;  // from the device that the plan is for
  const std::unique_ptr<Tokenizer> tokenizer;
  const bool encoder_decoder;
  Dataset train;  // before the model: a mistake in the data is found at once
  const SampleLengths lengths;
  std::optional<Dataset> eval;
  Prepared prepared;
  const RunPlan plan;
  const Config& resolved;              // the plan's, with numbers in place of auto
  std::optional<Predictor> predictor;  // if answers are generated
  const SampleOrder order;             // the training data's
  const RunLength length;
  Trainer trainer;

 private:
  BatchBudget* generation_budget() { return predictor ? &predictor->budget() : nullptr; }
};

// Compares what the data teach, the token that ends an answer and the chat template, with what the files say
// that `artefacts` will copy. Throws FormatError when generation_config.json is damaged.
Taught what_is_taught(const Config& config, const Dataset& train, const Tokenizer& tokenizer,
                      const Artefacts& artefacts);

}  // namespace trainer
