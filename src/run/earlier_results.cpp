#include "run/earlier_results.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <vector>

#include "trainer/base/files.h"
#include "trainer/base/strings.h"
#include "trainer/formats/checkpoint.h"
#include "trainer/formats/run_position.h"

#include "base/file_facts.h"
#include "formats/run_status.h"
#include "formats/trainer_state.h"
#include "run/output_directory.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

constexpr const char* kMetrics = "metrics.jsonl";

bool is_digits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

// "checkpoint-500", or with the ending that it has until it is complete: "checkpoint-500.tmp".
bool is_checkpoint(const std::string& name) {
  constexpr std::string_view prefix = "checkpoint-";
  return name.starts_with(prefix) &&
         is_digits(std::string_view(name).substr(prefix.size()).substr(0, name.find('.') - prefix.size()));
}

// model.safetensors, its index and shards, and an adapter's weights.
bool is_weights(const std::string& name) {
  return name == "adapter_model.safetensors" || name == "model.safetensors" ||
         name == "model.safetensors.index.json" ||
         (name.starts_with("model-") && name.ends_with(".safetensors") &&
          name.find("-of-") != std::string::npos);
}

// Files that a run writes in addition to weights and checkpoints.
bool is_record(const std::string& name) {
  static constexpr std::array names{
      kMetrics,           "bad_steps.jsonl", "skipped_rows.jsonl", "data_report.json",
      "log.txt",          "config.yaml",     "config.json",        "adapter_config.json",
      "environment.json", "report.html",     kTrainerStateFile,    kStatusFile};
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool has_training_step(const fs::path& metrics) {
  std::error_code ignored;
  if (!fs::is_regular_file(metrics, ignored)) return false;
  std::ifstream in(metrics);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(R"({"kind":"train")")) return true;
  }
  return false;
}

// "step-500.jsonl"
bool is_predictions(const std::string& name) {
  constexpr std::string_view begin = "step-", end = ".jsonl";
  return name.starts_with(begin) && name.ends_with(end) && name.size() > begin.size() + end.size() &&
         is_digits(std::string_view(name).substr(begin.size(), name.size() - begin.size() - end.size()));
}

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto at = fs::directory_iterator(directory, error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  if (error)
    throw OutputDirectoryError(
        concat("output_dir ", directory.string(), ": cannot be read: ", error.message()));
  std::sort(names.begin(), names.end());
  return names;
}

// What a helper of observe.report_to has noted: which run of the service this one was, and its steps.
bool is_sync_note(const std::string& name) { return name.starts_with(".sync-"); }

bool is_event_file(const std::string& name) { return name.starts_with("events.out.tfevents."); }

// The folder stays if something else is in it.
void remove_files(const fs::path& directory, bool (*is_ours)(const std::string&)) {
  std::error_code ignored;
  if (!fs::is_directory(directory, ignored)) return;
  for (const std::string& name : names_in(directory)) {
    if (is_ours(name)) delete_entry(directory / name);
  }
  fs::remove(directory, ignored);
}

}  // namespace

std::optional<std::string> find_results(const fs::path& directory) {
  for (const std::string& name : names_in(directory)) {
    const bool is_result =
        name == kMetrics ? has_training_step(directory / name) : is_weights(name) || is_checkpoint(name);
    if (is_result) return name;
  }
  return std::nullopt;
}

std::optional<ForeignCheckpoint> foreign_entry(const fs::path& directory) {
  const std::vector<int64_t> steps = checkpoint_steps(directory);
  for (const int64_t step : steps) {
    const fs::path checkpoint = checkpoint_path(directory, step);
    if (const std::string program = foreign_program(checkpoint); !program.empty())
      return ForeignCheckpoint{checkpoint_path(directory, steps.back()),
                               concat(checkpoint.filename().string(), " of another program, ", program)};
  }
  if (!is_run_directory(directory)) {
    if (const auto found = foreign_checkpoint_in(directory)) return found;
  }
  const std::string program = foreign_program(directory);
  if (program.empty()) return std::nullopt;
  return ForeignCheckpoint{directory, concat("results of another program, ", program)};
}

bool can_go_on(const fs::path& directory) {
  std::error_code ignored;
  if (fs::exists(directory / kPositionFile, ignored)) return true;
  const std::vector<int64_t> steps = checkpoint_steps(directory);
  return std::ranges::any_of(steps, [&](int64_t step) {
    return fs::exists(checkpoint_path(directory, step) / kPositionFile, ignored);
  });
}

bool is_run_directory(const fs::path& directory) {
  for (const char* name : {kMetrics, kPositionFile, kTrainerStateFile}) {
    if (has_entry(directory / name)) return true;
  }
  return std::ranges::any_of(names_in(directory), [&](const std::string& name) {
    return is_checkpoint(name) && has_entry(directory / name / kManifestFile);
  });
}

std::optional<std::string> find_foreign(const fs::path& directory) {
  for (const std::string& name : names_in(directory)) {
    const bool is_ours = is_weights(name) || is_record(name) || is_checkpoint(name) || is_sync_note(name) ||
                         name == kPositionFile;
    const bool is_git = name == ".git" || name == ".gitattributes" || name == ".gitignore";
    if (!is_ours && name != ".lock" && !is_git) return name;
  }
  return std::nullopt;
}

// The position is removed last: without it, nothing would show which run the other files belong to.
void remove_results(const fs::path& directory) {
  for (const std::string& name : names_in(directory)) {
    if (is_weights(name) || is_record(name) || is_checkpoint(name) || is_sync_note(name))
      delete_entry(directory / name);
  }
  remove_files(directory / "predictions", is_predictions);
  remove_files(directory / "tensorboard", is_event_file);
  delete_entry(directory / kPositionFile);
}

void remove_false_start(const fs::path& directory) { delete_entry(directory / kMetrics); }

void remove_halves(const fs::path& directory) {
  for (const std::string& name : names_in(directory)) {
    if (!name.ends_with(".tmp")) continue;
    const std::string whole = name.substr(0, name.size() - 4);
    if (is_weights(whole) || is_record(whole) || whole == kPositionFile) delete_entry(directory / name);
  }
}

}  // namespace trainer
