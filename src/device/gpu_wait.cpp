#include "device/gpu_wait.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trainer/base/strings.h"

#include "base/purposeful_wait.h"

namespace trainer {

namespace fs = std::filesystem;
namespace {

// The mode of /tmp itself: everybody can create files, nobody can remove another user's.
constexpr mode_t kEverybody = 01777;
// Follows no links, and does not block on a pipe that somebody may have put there.
constexpr int kFlags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;

bool make_directory(const fs::path& directory) {
  // The umask reduces the mode given to mkdir.
  return ::mkdir(directory.c_str(), kEverybody) == 0 ? ::chmod(directory.c_str(), kEverybody) == 0
                                                     : errno == EEXIST;
}

// Returns -1 and sets errno if the file cannot be opened. Tries first without O_CREAT: in a directory with
// the sticky bit, Linux refuses that flag for another user's file (fs.protected_regular).
int open_file(const fs::path& file) {
  for (int attempt = 0; attempt < 10; attempt++) {
    int fd = ::open(file.c_str(), O_RDWR | kFlags);
    if (fd < 0 && errno == EACCES) fd = ::open(file.c_str(), O_RDONLY | kFlags);  // enough for a lock
    if (fd >= 0 || errno != ENOENT) return fd;
    fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | kFlags, 0666);
    if (fd >= 0) {
      ::fchmod(fd, 0666);
      return fd;
    }
    if (errno != EEXIST) return -1;
  }
  return -1;
}

bool is_regular(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

std::string own_name() {
  const passwd* entry = ::getpwuid(::getuid());
  return concat("process ", ::getpid(), " of ",
                entry != nullptr ? entry->pw_name : concat("user ", ::getuid()));
}

// Another user may have written it: shows only one line of plain characters.
std::string holder_in(int fd) {
  std::array<char, 128> text{};
  const ssize_t size = ::pread(fd, text.data(), text.size(), 0);
  std::string name;
  for (ssize_t i = 0; i < size && text[static_cast<size_t>(i)] != '\n'; i++) {
    const char c = text[static_cast<size_t>(i)];
    if (std::isprint(static_cast<unsigned char>(c)) != 0) name += c;
  }
  return name.empty() ? "another run" : name;
}

GpuLock::Attempt cannot(const fs::path& path) {
  return {nullptr, "", concat(path.string(), ": ", std::strerror(errno))};
}

}  // namespace

fs::path gpu_lock_directory() {
  const char* given = std::getenv("TRAINER_GPU_LOCKS");
  return given != nullptr && *given != '\0' ? given : "/tmp/trainer-gpus";
}

std::string name_of_start(const std::string& uuid) { return uuid + ".start"; }

GpuLock::Attempt GpuLock::try_take(const fs::path& directory, const std::string& name) {
  if (!make_directory(directory)) return cannot(directory);
  const fs::path file = directory / (name + ".lock");
  const int fd = open_file(file);
  if (fd < 0) return cannot(file);
  if (!is_regular(fd)) {
    ::close(fd);
    return {nullptr, "", concat(file.string(), ": is not a regular file")};
  }
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    Attempt attempt = errno == EWOULDBLOCK ? Attempt{nullptr, holder_in(fd), ""} : cannot(file);
    ::close(fd);
    return attempt;
  }
  // Only for the messages of other runs: the lock works without it too.
  const std::string holder = own_name() + "\n";
  if (::ftruncate(fd, 0) == 0 && ::pwrite(fd, holder.data(), holder.size(), 0) < 0) ::ftruncate(fd, 0);
  return {std::unique_ptr<GpuLock>(new GpuLock(fd)), "", ""};
}

// The file stays: another run may have opened it and be waiting for the lock.
GpuLock::~GpuLock() { ::close(fd_); }

namespace {

// The signal handler writes into it, on whichever thread it runs; the sleeping thread polls it.
std::array<int, 2> signalled{-1, -1};

void on_signal(int) {
  const char byte = 0;
  if (::write(signalled[1], &byte, 1) < 0) return;  // full: the sleeping thread already knows
}

// Installs the handler while it lives, except for a signal that is ignored (nohup).
class Handler {
 public:
  explicit Handler(int signal) : signal_(signal) {
    struct sigaction ours {};
    ours.sa_handler = on_signal;
    ::sigaction(signal_, nullptr, &before_);
    installed_ = before_.sa_handler != SIG_IGN && ::sigaction(signal_, &ours, nullptr) == 0;
  }
  ~Handler() {
    if (installed_) ::sigaction(signal_, &before_, nullptr);
  }
  Handler(const Handler&) = delete;
  Handler& operator=(const Handler&) = delete;

 private:
  int signal_;
  bool installed_ = false;
  struct sigaction before_ {};
};

}  // namespace

bool interruptible_sleep(double seconds) {
  const PurposefulWait waits;
  using Clock = std::chrono::steady_clock;
  if (signalled[0] < 0 && ::pipe2(signalled.data(), O_CLOEXEC | O_NONBLOCK) != 0) return false;
  const Handler interrupt(SIGINT), terminate(SIGTERM);
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    const double left = std::chrono::duration<double>(end - Clock::now()).count();
    pollfd pipe{signalled[0], POLLIN, 0};
    const int ready = ::poll(&pipe, 1, static_cast<int>(std::ceil(std::clamp(left, 0.0, 3600.0) * 1000)));
    char byte = 0;
    if (ready > 0 && ::read(signalled[0], &byte, 1) == 1) return false;
    if (left <= 0) return true;
  }
}

}  // namespace trainer
