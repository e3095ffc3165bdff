// The status of a run, from the files in its output directory: status.json, which the run writes every ten
// seconds, and the end of metrics.jsonl. Nothing is asked of the run, so it works for one on another machine
// too.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/process_identity.h"

namespace trainer {

inline constexpr const char* kStatusFile = "status.json";
constexpr double kStatusInterval = 10;  // seconds

enum class RunPhase {
  starting,  // loads model and data; only its lock file is there
  running,
  finished,
  stopped,  // saved its state and ended, by a signal or training.max_hours
  failed,   // ended with an error
  killed,   // ended without a word
  silent,   // said that it runs, a while ago, on another machine
  unknown   // not finished, and it wrote no status.json
};

std::string name_of(RunPhase state);

struct RunStatus {
  RunPhase state = RunPhase::unknown;
  std::string model;  // model.path
  int64_t step = 0, total_steps = 0;
  std::optional<double> epoch, loss;  // the loss of the last step
  std::optional<double> learning_rate, tokens_per_second;
  std::optional<double> memory_peak, memory_limit;  // bytes
  std::optional<int64_t> evaluation_step;
  std::optional<double> eval_loss;
  std::optional<int64_t> saved_step;
  std::optional<double> seconds_left;
  std::string work;                        // its work besides steps
  std::string message;                     // why it stopped or failed
  std::optional<int64_t> exit_code;        // of a run that ended
  std::optional<double> started, updated;  // seconds since 1970
  ProcessIdentity process;                 // pid 0: not known
};

// Takes over what a row of metrics says; rows come in their order.
void add_row(RunStatus& status, const nlohmann::ordered_json& row);

// status.json, and what `trainer status --json` prints.
nlohmann::ordered_json to_json(const RunStatus& status);

// Returns the step of the newest checkpoint from which the run in this directory can go on; nothing if there
// is none: nothing was saved yet, or only weights (save.weights_only).
std::optional<int64_t> step_to_go_on_from(const std::filesystem::path& directory);

// Returns whether the directory is that of a run, finished or not.
bool is_run(const std::filesystem::path& directory);

// Returns the status at the time `now` (seconds since 1970). Files that are missing, or damaged, are left
// out. Throws FormatError when the directory is not that of a run.
RunStatus read_run_status(const std::filesystem::path& directory, double now);

// Returns the directories of runs in and below `directory`, sorted by path. Does not look into runs, and not
// deeper than four folders.
std::vector<std::filesystem::path> find_runs(const std::filesystem::path& directory);

}  // namespace trainer
