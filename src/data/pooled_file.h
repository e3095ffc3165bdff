// Files that are mapped while they are used. The system limits how many mappings a process has
// (vm.max_map_count: 65,530), and data may have more files.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

#include "trainer/base/error.h"
#include "trainer/base/files.h"

namespace trainer {

class PooledFile {
 public:
  // The number of files that stay mapped: the most recently used ones.
  static constexpr size_t kMapped = 512;

  PooledFile() = default;  // none
  // `code`: the exit code for a fault in the mapped file (base/mapping_faults.h).
  PooledFile(std::filesystem::path path, ExitCode code);

  explicit operator bool() const { return state_ != nullptr; }
  const std::filesystem::path& path() const;
  // Maps the file unless it is mapped. The mapping stays for as long as the result is held; views into it are
  // valid until then. Safe to use from several threads at once. Throws FormatError as MappedFile::open()
  // does. The file may have been replaced since it was last mapped; callers check this if it matters.
  std::shared_ptr<const MappedFile> map() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// Views values as their bytes, for memory and files.

template <class Value>
std::string_view bytes_of(std::span<const Value> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

}  // namespace trainer
