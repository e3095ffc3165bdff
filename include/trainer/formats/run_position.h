// trainer_position.json: where a run stood when it saved, and what must be as it was for another to go on
// from there. Random numbers need nothing: they follow from seed and step.
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
  int64_t samples_seen = 0;  // the whole state of the loader
  int64_t tokens_seen = 0;
  int64_t total_steps = 0;   // of the run that saved; another may be longer
  int64_t dataset_size = 0;  // samples of an epoch
  // Of metrics.jsonl when it saved: later rows belong to steps that are made again.
  int64_t metrics_bytes = 0;
  double seconds_trained = 0;  // over all its processes
  double losses_to_log = 0;    // of the steps that trainer_state.json has no row of yet
  int64_t steps_to_log = 0;
  int64_t evaluations_without_gain = 0;
  bool evaluation_due = false;        // the one after this step was not made, or not to its end
  int64_t bad_steps_in_a_row = 0;     // up to this step: their numbers were not finite
  std::vector<double> recent_losses;  // what spikes are told from, the oldest first
  std::optional<double> best_metric;
  std::optional<int64_t> best_step;
  std::string best_by;  // what these are by: a value of another metric or of other data is no better or worse
  // What recovery from a lack of memory has learned, by the name of the budget.
  std::map<std::string, int64_t> budgets;
  // What makes the run what it is, as a text to compare and to show, by its configuration key: "seed" ->
  // "42", "data.train" -> "1,200 bytes in 1 file, xxh3 0123456789abcdef". A key may have further entries:
  // "model.path tokenizer.json".
  std::map<std::string, std::string> fixed;
  std::string began_from;  // the checkpoint elsewhere that the run began from; "": it began at its beginning
};

void write_position(const std::filesystem::path& directory, const RunPosition& position);
// Throws FormatError: missing, no JSON, a field that is absent, of another type or out of its range, or
// another checksum than it names.
RunPosition read_position(const std::filesystem::path& directory);

// A key of RunPosition::fixed that was saved with another value. "-" stands for a key that one of them lacks.
struct FixedDifference {
  std::string key, saved, now;
};
std::vector<FixedDifference> differences(const std::map<std::string, std::string>& saved,
                                         const std::map<std::string, std::string>& now);

}  // namespace trainer
