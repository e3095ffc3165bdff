// Where a run begins: at its own beginning, or where an earlier start of it was stopped.
#pragma once

#include <filesystem>
#include <optional>

#include <nlohmann/json.hpp>

#include "trainer/config/config.h"
#include "trainer/formats/run_position.h"
#include "trainer/run/run.h"
#include "trainer/run/run_model.h"
#include "trainer/training/trainer.h"

namespace trainer {

struct Resumption {
  // `fixed` is of this start; the rest of the checkpoint, or 0.
  RunPosition position;
  std::optional<std::filesystem::path> checkpoint;
  nlohmann::ordered_json history = nlohmann::ordered_json::array();  // log_history of the checkpoint
  bool keeps_results = false;  // what is in the output directory is of this run and stays
  bool goes_back = false;      // to a checkpoint that was named: later ones are not wanted any more
  bool is_complete = false;    // there is nothing left to do
};

// As config.resume says, in the directory of `run`, which has accepted it. Tells what is skipped and why, and
// what was found. Throws FormatError: the output directory or the checkpoint is of another run (each key with
// both values, but for those in config.resume_changed), or the checkpoint that was named is damaged.
Resumption find_resumption(const Config& config, const Run& run);

// Model and optimizer as they were in the checkpoint; nothing where there is none.
void load_state(const Resumption& resumption, const Prepared& prepared, Trainer& trainer);

// Run::begin(), and what a run that goes back leaves behind.
void begin_run(Run& run, const Resumption& resumption);

}  // namespace trainer
