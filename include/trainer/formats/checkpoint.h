// OUT/checkpoint-STEP: a folder that is complete or not there (docs/checkpoints.md). It is filled under
// another name; a manifest with the size and checksum of every file is written last; then it gets its name.
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

// A checkpoint whose files are what its manifest says.
struct Checkpoint {
  std::filesystem::path path;
  int64_t step = 0;
  std::map<std::string, int64_t> files;  // name -> bytes, without the manifest

  int64_t bytes() const;
};

class CheckpointWriter {
 public:
  // Makes OUT/checkpoint-STEP.tmp, empty. Throws FormatError.
  CheckpointWriter(const std::filesystem::path& output_dir, int64_t step);
  // Removes it with all that is in it unless it was committed.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Where the files are to be written; files only, no folders.
  const std::filesystem::path& directory() const { return temporary_; }

  // Syncs and lists the files, writes the manifest, renames the folder to OUT/checkpoint-STEP (one that is
  // there is replaced) and syncs OUT. Throws FormatError; then this checkpoint is not there, or, where only
  // OUT could not be synced, whole. Every other checkpoint stays as it is in any case.
  Checkpoint commit();

 private:
  void take_name();
  void remove_temporary();

  std::filesystem::path temporary_, path_;
  int64_t step_;
};

// The steps of the folders OUT/checkpoint-STEP, whole or damaged, in rising order; none where OUT is not
// there.
std::vector<int64_t> checkpoint_steps(const std::filesystem::path& output_dir);
std::filesystem::path checkpoint_path(const std::filesystem::path& output_dir, int64_t step);

// Reads every byte of it and compares with its manifest. Throws FormatError that names each damaged file and
// says how. Files that the manifest does not name are ignored.
Checkpoint read_checkpoint(const std::filesystem::path& path);

// For a directory that is used as a model or as an adapter. Where it is a checkpoint, that is, has a
// manifest, its files are read and compared with it as by read_checkpoint, but for the optimizer's state,
// which a model does without. Nothing is read where there is no manifest. The base of an adapter is another
// directory.
void verify_model_files(const std::filesystem::path& directory);

// The newest in OUT that is whole and has all of `needed`. `skipped` gets a line for each newer one: which
// file of it is damaged and how, or what it lacks.
std::optional<Checkpoint> newest_complete_checkpoint(
    const std::filesystem::path& output_dir, const std::vector<std::string>& needed = {},
    const std::function<void(const std::string&)>& skipped = log::warning);

// What is known of a run's checkpoints.
struct KnownCheckpoints {
  std::optional<int64_t> best_step = std::nullopt;
  // The last step after which another went well: the weights of that checkpoint, and of those before, are
  // good.
  std::optional<int64_t> good_step = std::nullopt;
  // It was just committed, and need not be read again to know that it is whole.
  std::optional<int64_t> whole_step = std::nullopt;
};

// Removes the oldest checkpoints until `total_limit` are left (0: keeps all), as Transformers does: the best
// counts and is kept, and so is the newest. Beyond the limit stay the newest good one, while none that is
// kept is known to be good, and the newest whole one, while none that is kept is whole. Returns whether a
// good one stays for that reason. Throws FormatError when one cannot be removed; a half-removed one has lost
// its name.
bool limit_checkpoints(const std::filesystem::path& output_dir, int64_t total_limit,
                       const KnownCheckpoints& known = {});

// Removes one; half-removed it has lost its name. Throws FormatError.
void remove_checkpoint(const std::filesystem::path& path);

// To be called when a run starts: removes folders that a killed process was filling or removing, and gives a
// checkpoint that it was replacing its name back. What cannot be removed is warned of.
void remove_checkpoint_litter(const std::filesystem::path& output_dir);

// What to tell a user when the file system of OUT has no room for `bytes` more, with the figures; "" when it
// has.
std::string lack_of_space(const std::filesystem::path& output_dir, int64_t bytes);

}  // namespace trainer
