// Where a run begins: at its own beginning, or at a checkpoint of an earlier start.
#pragma once

#include <filesystem>
#include <optional>

#include <nlohmann/json.hpp>

#include "trainer/config/config.h"
#include "trainer/formats/run_position.h"
#include "trainer/run/output_directory.h"
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

// As config.resume says, in the directory of `output`, which has accepted it. Logs what is skipped and
// why, and what was found. Throws OutputDirectoryError: the output directory or the checkpoint is of another
// run (each key with both values, but for those in config.resume_changed); FormatError: the checkpoint that
// was named is damaged.
Resumption find_resumption(const Config& config, const OutputDirectory& output);

// Model and optimizer as they were in the checkpoint; nothing where there is none.
void load_state(const Resumption& resumption, const Prepared& prepared, Trainer& trainer);

// OutputDirectory::begin(). A run that goes back to an earlier checkpoint removes the later ones.
void begin_run(OutputDirectory& output, const Resumption& resumption);

}  // namespace trainer
