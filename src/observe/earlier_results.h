// What an earlier run left in an output directory.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace trainer {

// The first sign of an earlier run's results: weights, a checkpoint, or a training step in metrics.jsonl.
// None in a directory whose run ended before its first step.
std::optional<std::string> find_results(const std::filesystem::path& directory);

// Removes everything that a run writes, its configuration and log too; nothing else in the directory. Throws
// FormatError when something cannot be removed.
void remove_results(const std::filesystem::path& directory);

// Removes what a run that ended before its first step, or was killed while it saved, left half-done: rows
// without a training step, and temporary files. log.txt stays and tells what happened.
void remove_false_start(const std::filesystem::path& directory);

}  // namespace trainer
