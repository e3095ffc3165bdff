#include "fuzz/fuzz.h"

#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <stdlib.h>
#include <string>
#include <unistd.h>

#include "trainer/base/log.h"

namespace trainer::fuzz {
namespace fs = std::filesystem;
namespace {

class Scratch {
 public:
  Scratch() {
    // In memory where there is such a file system: it is written for each input.
    const fs::path parent = fs::is_directory("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path();
    std::string name = (parent / "trainer-fuzz-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
    log::set_level(log::Level::error);
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

}  // namespace

const fs::path& scratch() {
  static const Scratch instance;
  return instance.path();
}

void require_none(const std::string& wrong, std::string_view message) {
  if (wrong.empty()) return;
  std::fprintf(stderr, "%s in: %.*s\n", wrong.c_str(), static_cast<int>(message.size()), message.data());
  std::abort();
}

void require_own_words(std::string_view input, std::string_view message) {
  const std::string words = test::foreign_words(message);
  if (input.find(words) == std::string_view::npos) require_none("foreign words '" + words + "'", message);
}

fs::path put(const fs::path& name, std::string_view bytes) {
  const fs::path path = scratch() / name;
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0 || ::write(fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) std::abort();
  ::close(fd);
  return path;
}

}  // namespace trainer::fuzz
