#include "export/new_output.h"

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/free_space.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"

namespace trainer {
namespace fs = std::filesystem;

NewOutput::NewOutput(const fs::path& path, bool file)
    : path_(fs::absolute(path).lexically_normal()), is_file_(file) {
  if (!path_.has_filename()) path_ = path_.parent_path();  // "out/"
  std::error_code error;
  const bool empty_folder = fs::is_directory(path_, error) && fs::is_empty(path_, error);
  if (fs::exists(path_, error) && (file || !empty_folder)) {
    throw ConfigError(concat(path_.string(), ": is there already; give a ", file ? "file" : "directory",
                             " that does not exist"));
  }
  temporary_ = path_.string() + ".tmp";
  delete_entry(temporary_);
  try {
    make_directories(temporary_);
  } catch (...) {
    remove(temporary_);
    throw;
  }
}

NewOutput::~NewOutput() { remove(temporary_); }

void NewOutput::remove(const fs::path& path) {
  try {
    delete_entry(path);
  } catch (const FormatError& e) {
    log::warning(concat(e.what(), "; remove it"));
  }
}

void NewOutput::complete() {
  try {
    move_entry(is_file_ ? file() : temporary_, path_);
  } catch (...) {
    // Renamed, but not synced: it would not survive the end of the machine.
    std::error_code error;
    if (is_file_ || !fs::is_empty(path_, error)) remove(path_);
    throw;
  }
}

void require_space(const fs::path& directory, int64_t bytes) {
  const int64_t free = free_space(directory);
  if (free >= bytes) return;
  throw FormatError(concat(directory.string(), ": ", bytes_string(free), " are free, the export needs ",
                           bytes_string(bytes), "; free some space, or export elsewhere"));
}

}  // namespace trainer
