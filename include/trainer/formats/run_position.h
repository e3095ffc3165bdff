// trainer_position.json: where a run was when it saved, and which settings and data must be unchanged to
// resume from there. Random numbers need no state: they are computed from seed and step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trainer {

inline constexpr const char* kPositionFile = "trainer_position.json";

struct RunPosition {
  int64_t step = 0;
  int64_t samples_seen = 0;  // all the state that the loader needs
  int64_t tokens_seen = 0;
  int64_t total_steps = 0;   // total of the run that saved; the resumed run may be longer
  int64_t dataset_size = 0;  // samples of an epoch
  // The size of metrics.jsonl when it saved. Rows after that belong to steps that are repeated.
  int64_t metrics_bytes = 0;
  double seconds_trained = 0;  // sum over all processes of the run
  double losses_to_log = 0;    // sum over the steps that have no row in trainer_state.json yet
  int64_t steps_to_log = 0;
  int64_t evaluations_without_gain = 0;
  bool evaluation_due = false;        // the evaluation after this step has not been finished
  int64_t bad_steps_in_a_row = 0;     // up to this step, with NaN or Inf
  std::vector<double> recent_losses;  // for the detection of loss spikes, oldest first
  std::optional<double> best_metric;
  std::optional<int64_t> best_step;
  std::string best_by;  // metric and data of best_metric; values of another metric or data are not compared
  // The batch budgets that out-of-memory recovery has learned, by name.
  std::map<std::string, int64_t> budgets;
  // Everything that must not change on resume, by configuration key, as text to compare and to show: "seed"
  // -> "42", "data.train" -> "1,200 bytes in 1 file, xxh3 0123456789abcdef". A key may have further entries:
  // "model.path tokenizer.json".
  std::map<std::string, std::string> fixed;
  std::string began_from;  // the checkpoint of another run that this one started from; "": from scratch
};

void write_position(const std::filesystem::path& directory, const RunPosition& position);
// Throws FormatError when the file is missing or is not JSON, when a field is missing, has the wrong type or
// is out of range, or when the checksum in the file does not match.
RunPosition read_position(const std::filesystem::path& directory);

// The same without a file: its content as text, and back. `where` begins the message of a FormatError.
std::string position_text(const RunPosition& position);
RunPosition position_from(const std::string& text, const std::string& where);

// A key of RunPosition::fixed whose saved value differs. "-": the key is missing on that side.
struct FixedDifference {
  std::string key, saved, now;
};
std::vector<FixedDifference> differences(const std::map<std::string, std::string>& saved,
                                         const std::map<std::string, std::string>& now);

}  // namespace trainer
