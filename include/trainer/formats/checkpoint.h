// OUT/checkpoint-STEP: a folder that is either complete or does not exist (docs/reliability.md). Its files
// are written under a temporary name, then a manifest with the size and checksum of every file, and then the
// folder is renamed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trainer/base/log.h"

namespace trainer {

inline constexpr const char* kManifestFile = "trainer_manifest.json";

// A checkpoint whose files match its manifest.
struct Checkpoint {
  std::filesystem::path path;
  int64_t step = 0;
  std::map<std::string, int64_t> files;  // name -> bytes, without the manifest

  int64_t bytes() const;
};

class CheckpointWriter {
 public:
  // Creates an empty folder OUT/checkpoint-STEP.tmp. Throws FormatError.
  CheckpointWriter(const std::filesystem::path& output_dir, int64_t step);
  // Removes that folder and its content unless it was committed.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Write the files here; subfolders are allowed.
  const std::filesystem::path& directory() const { return temporary_; }

  // Syncs and lists the files, writes the manifest, renames the folder to OUT/checkpoint-STEP (replacing an
  // existing one) and syncs OUT. If it throws a FormatError, this checkpoint does not exist; it is complete
  // if only the sync of OUT failed. Other checkpoints are never touched.
  Checkpoint commit();

 private:
  void take_name();
  void remove_temporary();

  std::filesystem::path temporary_, path_;
  int64_t step_;
};

// Returns the steps of all folders OUT/checkpoint-STEP, complete or damaged, in ascending order; empty when
// OUT does not exist.
std::vector<int64_t> checkpoint_steps(const std::filesystem::path& output_dir);
std::filesystem::path checkpoint_path(const std::filesystem::path& output_dir, int64_t step);

// Reads every byte of a checkpoint and compares it with the manifest. Throws a FormatError that names each
// damaged file and the damage. Files that the manifest does not list are ignored.
Checkpoint read_checkpoint(const std::filesystem::path& path);

// Checks a directory that is to be used as a model or as an adapter. If it has a manifest (it is a
// checkpoint), its files are read and compared as in read_checkpoint, except the optimizer state, which a
// model does not need. Without a manifest nothing is read. The base model of an adapter is not checked.
// Throws FormatError.
void verify_model_files(const std::filesystem::path& directory);

// Returns the newest checkpoint in OUT that is complete and has all files in `needed`, or none. `skipped`
// gets one line for each newer checkpoint: which file is damaged and how, or which file is missing.
std::optional<Checkpoint> newest_complete_checkpoint(
    const std::filesystem::path& output_dir, const std::vector<std::string>& needed = {},
    const std::function<void(const std::string&)>& skipped = log::warning);

// A run's knowledge of its checkpoints.
struct KnownCheckpoints {
  std::optional<int64_t> best_step = std::nullopt;
  // The last checkpoint that was followed by a successful step: its weights, and those of all checkpoints
  // before it, are good.
  std::optional<int64_t> good_step = std::nullopt;
  // A checkpoint that was just committed: it is complete, and need not be read again to check that.
  std::optional<int64_t> whole_step = std::nullopt;
};

// Removes the oldest checkpoints until `total_limit` are left (0: keeps all), as Transformers does: the best
// and the newest are always kept, and count. Two more may stay beyond the limit: the newest good checkpoint,
// if none of the kept ones is known to be good, and the newest complete one, if none of the kept ones is
// complete. Returns whether a good one stays for that reason. Throws FormatError when a checkpoint cannot be
// removed; it is renamed first, so a half-removed folder never looks like a checkpoint.
bool limit_checkpoints(const std::filesystem::path& output_dir, int64_t total_limit,
                       const KnownCheckpoints& known = {});

// Removes one checkpoint. It is renamed first, so a half-removed folder never looks like a checkpoint. Throws
// FormatError.
void remove_checkpoint(const std::filesystem::path& path);

// Call this when a run starts. It removes folders that a killed process was filling or removing, and renames
// a checkpoint that was being replaced back. Logs a warning for a folder that cannot be removed.
void remove_checkpoint_litter(const std::filesystem::path& output_dir);

// Returns a message for the user, with both sizes, when the file system of OUT has no room for `bytes` more;
// "" when it has.
std::string lack_of_space(const std::filesystem::path& output_dir, int64_t bytes);

}  // namespace trainer
