// What an earlier run left in an output directory.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace trainer {

// The first sign of an earlier run's results: weights, a checkpoint, or a training step in metrics.jsonl.
// None in a directory whose run ended before its first step.
std::optional<std::string> find_results(const std::filesystem::path& directory);

// Whether a run, this one or another, could go on in it: there is a position, its own or a checkpoint's.
bool can_go_on(const std::filesystem::path& directory);

// Whether a run of this program was there: its metrics, its position, or checkpoints with a manifest. What is
// in another directory, such as that of a base model, is not removed.
bool is_run_directory(const std::filesystem::path& directory);

// Removes everything that a run writes, its configuration and log too; nothing else in the directory. Throws
// FormatError when something cannot be removed.
void remove_results(const std::filesystem::path& directory);

// Removes the rows of a run that ended before its first step. log.txt stays and tells what happened.
void remove_false_start(const std::filesystem::path& directory);

// Removes temporary files of a run that was killed while it wrote.
void remove_halves(const std::filesystem::path& directory);

}  // namespace trainer
