// The files that an earlier run left in an output directory.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "formats/foreign_checkpoint.h"

namespace trainer {

// Returns the first sign of an earlier run's results: weights, a checkpoint, or a training step in
// metrics.jsonl. Nothing if that run ended before its first step.
std::optional<std::string> find_results(const std::filesystem::path& directory);

// Returns the checkpoint or the results of another program that are there, and what shows it. In a directory
// that a run of this program has used, only what is named as its own checkpoints are.
std::optional<ForeignCheckpoint> foreign_entry(const std::filesystem::path& directory);

// Returns whether a run, this one or another, could resume there: a position exists at the root or in a
// checkpoint.
bool can_go_on(const std::filesystem::path& directory);

// Returns whether a run of this program used the directory: it has metrics, a position, or checkpoints with a
// manifest. Files of any other directory, such as that of a base model, are never removed.
bool is_run_directory(const std::filesystem::path& directory);

// Returns the first entry, by name, that no run writes into its output directory; those of Git do not
// count.
std::optional<std::string> find_foreign(const std::filesystem::path& directory);

// Removes everything that a run writes, including its configuration and log, and nothing else. Throws
// FormatError when something cannot be removed.
void remove_results(const std::filesystem::path& directory);

// Removes the rows of a run that ended before its first step. log.txt stays, to show what happened.
void remove_false_start(const std::filesystem::path& directory);

// Removes temporary files of a run that was killed while writing.
void remove_halves(const std::filesystem::path& directory);

}  // namespace trainer
