#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/strings.h"
#include "trainer/formats/checkpoint.h"

#include "base/checksum.h"
#include "formats/checkpoint_manifest.h"
#include "formats/checkpoint_names.h"

namespace trainer {
namespace fs = std::filesystem;

CheckpointWriter::CheckpointWriter(const fs::path& output_dir, int64_t step)
    : temporary_(with_ending(checkpoint_path(output_dir, step), kFilling)),
      path_(checkpoint_path(output_dir, step)),
      step_(step) {
  delete_entry(temporary_);
  try {
    make_directories(temporary_);
  } catch (...) {
    remove_temporary();
    throw;
  }
}

CheckpointWriter::~CheckpointWriter() { remove_temporary(); }

// Does nothing after commit(), which renames the folder.
void CheckpointWriter::remove_temporary() {
  try {
    delete_entry(temporary_);
  } catch (const FormatError& e) {
    log::warning(concat(e.what(), "; the next start removes it"));
  }
}

Checkpoint CheckpointWriter::commit() {
  Checkpoint checkpoint{path_, step_, {}};
  Manifest manifest{step_, {}};
  std::error_code error;
  for (fs::recursive_directory_iterator at(temporary_, error), end; !error && at != end;
       at.increment(error)) {
    const bool is_folder = at->is_directory() && !at->is_symlink();
    if (!is_folder && !at->is_regular_file())
      throw FormatError(concat(at->path().string(), ": only files and folders can be in a checkpoint"));
    sync_entry(at->path());
    if (is_folder) continue;
    const std::string name = at->path().lexically_relative(temporary_).generic_string();
    const auto bytes = static_cast<int64_t>(at->file_size());
    manifest.files[name] = {bytes, file_checksum(at->path())};
    checkpoint.files[name] = bytes;
  }
  if (error) throw FormatError(concat(temporary_.string(), ": cannot be read: ", error.message()));
  write_manifest(temporary_, manifest);
  take_name();
  return checkpoint;
}

// A checkpoint that is replaced is kept under another name until the new one has been renamed.
void CheckpointWriter::take_name() {
  std::error_code ignored;
  const fs::path aside = with_ending(path_, kReplacing);
  delete_entry(aside);
  const bool replaces = fs::exists(fs::symlink_status(path_, ignored));  // also a link to nothing
  try {
    if (replaces) move_entry(path_, aside);
    move_entry(temporary_, path_);
    if (replaces) delete_entry(aside);
  } catch (...) {
    if (replaces) remove_checkpoint_litter(path_.parent_path());
    throw;
  }
}

}  // namespace trainer
