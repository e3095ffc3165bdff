#include "base/scratch_file.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/strings.h"

#include "base/file_calls.h"
#include "base/free_space.h"
#include "base/mapping_table.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

constexpr const char* kPrefix = ".trainer-offload-";

// Opens a new file and takes its name away.
int open_nameless(const fs::path& directory) {
  static std::atomic<int> next = 0;
  for (;;) {
    const fs::path path = directory / concat(kPrefix, ::getpid(), "-", next++);
    const int fd = calls::open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW);
    if (fd < 0 && errno == EEXIST) continue;  // of another machine, or left by a killed process
    if (fd < 0)
      throw FormatError(concat(directory.string(), ": no file can be created: ", std::strerror(errno)));
    // Another run that shares the directory may have removed the name as a leftover.
    if (calls::unlink(path) == 0 || errno == ENOENT) return fd;
    const int error = errno;
    calls::close(fd);
    throw FormatError(concat(path.string(), ": cannot be removed: ", std::strerror(error)));
  }
}

[[noreturn]] void refuse_size(const fs::path& directory, size_t size, int error) {
  const char* reason = error == EFBIG ? "the file size limit is reached (ulimit -f)" : std::strerror(error);
  throw of_family(ErrorCode::disk_full,
                  FormatError(concat(directory.string(), ": no room for a file of ",
                                     bytes_string(static_cast<int64_t>(size)), ", ",
                                     bytes_string(free_space(directory)), " free: ", reason)));
}

}  // namespace

std::shared_ptr<const ScratchFile> ScratchFile::create(const fs::path& directory, size_t size) {
  const int fd = open_nameless(directory);
  if (calls::allocate(fd, static_cast<off_t>(size)) != 0) {
    const int error = errno;
    calls::close(fd);
    refuse_size(directory, size, error);
  }
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  const int error = errno;
  calls::close(fd);
  if (data == MAP_FAILED) {
    throw FormatError(concat(
        directory.string(), ": a file cannot be mapped: ", std::strerror(error),
        error == ENOMEM ? " (vm.max_map_count limits the number of files, ulimit -v their size)" : ""));
  }
  note_mapping(data, size, concat(directory.string(), " (memory.offload)").c_str());
  return std::shared_ptr<const ScratchFile>(new ScratchFile(static_cast<std::byte*>(data), size));
}

ScratchFile::~ScratchFile() {
  forget_mapping(data_);
  ::munmap(data_, size_);
}

void remove_scratch_files(const fs::path& directory) {
  std::vector<fs::path> left;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    if (entry.path().filename().string().starts_with(kPrefix)) left.push_back(entry.path());
  }
  for (const fs::path& path : left) delete_entry(path);
}

}  // namespace trainer
