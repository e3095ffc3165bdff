#include "cli/new_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/strings.h"

namespace trainer::cli {
namespace {

[[noreturn]] void refuse_existing(const std::string& path, const std::string& command) {
  throw of_family(ErrorCode::output_exists,
                  ConfigError(concat(command, ": ", path,
                                     " exists; it is not overwritten, give another name with --out")));
}

}  // namespace

void require_new_file(const std::string& path, const std::string& command) {
  std::error_code ignored;
  if (std::filesystem::symlink_status(path, ignored).type() != std::filesystem::file_type::not_found)
    refuse_existing(path, command);
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder, ignored))
    throw ConfigError(concat(command, ": the folder of ", path, " does not exist"), ExitCode::files);
}

// The content goes to a file without this name first. A link takes the name only where there is none.
void write_new_file(const std::string& path, const std::string& content, const std::string& command) {
  require_new_file(path, command);
  const std::string draft = concat(path, ".", ::getpid(), ".new");
  write_atomically(draft, content);
  const int linked = ::link(draft.c_str(), path.c_str());
  const int reason = errno;
  if (linked != 0 && (reason == EPERM || reason == EOPNOTSUPP)) {  // a file system without hard links
    require_new_file(path, command);
    return move_entry(draft, path);
  }
  delete_entry(draft);
  if (linked == 0) return;
  if (reason == EEXIST) refuse_existing(path, command);
  throw FormatError(concat(path, ": cannot be written: ", std::strerror(reason)));
}

}  // namespace trainer::cli
