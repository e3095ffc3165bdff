// Finds where a run begins: at step 0, or at a checkpoint of an earlier start.
#pragma once

#include <filesystem>
#include <optional>

#include <nlohmann/json.hpp>

#include "trainer/config/config.h"
#include "trainer/formats/run_position.h"
#include "trainer/training/trainer.h"

#include "run/output_directory.h"
#include "run/run_model.h"

namespace trainer {

struct Resumption {
  // `fixed` is that of this start; everything else comes from the checkpoint, or is 0.
  RunPosition position;
  std::optional<std::filesystem::path> checkpoint;
  std::string template_date;  // the day on which the run began, or that the configuration names
  nlohmann::ordered_json history = nlohmann::ordered_json::array();  // log_history of the checkpoint
  bool keeps_results = false;  // the output directory holds results of this run, which stay
  bool goes_back = false;      // to a checkpoint that was named; later ones are removed
  bool is_complete = false;    // nothing is left to do
};

// Searches the directory of `output` as config.resume says. Logs what was found, and what is skipped and why.
// Throws OutputDirectoryError when the output directory or the checkpoint belongs to another run (it names
// each key with both values, except those in config.resume_changed), FormatError when the named checkpoint is
// damaged. With several ranks, rank 0 searches, and all get what it found, also its date.
Resumption find_resumption(const Config& config, const OutputDirectory& output,
                           const Ranks& ranks = Ranks::none());

// Loads model and optimizer state from the checkpoint. Does nothing without one.
void load_state(const Resumption& resumption, const Prepared& prepared, Trainer& trainer);

// Calls OutputDirectory::begin(). A run that goes back to an earlier checkpoint removes the later ones.
void begin_run(OutputDirectory& output, const Resumption& resumption);

}  // namespace trainer
