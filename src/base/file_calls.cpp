#include "base/file_calls.h"

#include <array>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

namespace trainer {
namespace {

constexpr const char* kVariable = "TRAINER_FILE_FAULT";

constexpr std::array kErrors{std::pair{"ENOSPC", ENOSPC}, std::pair{"EIO", EIO}, std::pair{"EACCES", EACCES},
                             std::pair{"EDQUOT", EDQUOT}, std::pair{"EROFS", EROFS}};
constexpr std::array kKinds{std::pair{"brief", FaultKind::brief}, std::pair{"cut", FaultKind::cut},
                            std::pair{"crash", FaultKind::crash}, std::pair{"power", FaultKind::power}};

// The outcome of one operation.
enum class Fate { usual, fails, half, half_then_fails, half_then_ends };

class Plan {
 public:
  static Plan& instance() {
    static Plan plan;
    return plan;
  }

  void set(std::optional<FileFault> fault) {
    const std::lock_guard lock(mutex_);
    for (const auto& [file, fd] : unsynced_) ::close(fd);
    unsynced_.clear();
    operations_ = 0;
    fault_ = fault;
    is_set_ = fault.has_value();
  }

  int64_t operations() const { return operations_; }

  // Counts an operation and decides its outcome; ends the process if the fault says so and the operation is
  // not a write.
  Fate next(bool needs_space, bool is_write) {
    const int64_t number = ++operations_;
    if (!is_set_) return Fate::usual;
    const std::lock_guard lock(mutex_);
    if (!fault_ || number < fault_->operation) return Fate::usual;
    const bool first = number == fault_->operation;
    if (!first && !(fault_->lasting && (needs_space || !is_lack_of_space()))) return Fate::usual;
    const FaultKind kind = fault_->kind;
    if (kind == FaultKind::brief) return is_write ? Fate::half : Fate::usual;
    if (kind == FaultKind::crash || kind == FaultKind::power) {
      if (is_write) return Fate::half_then_ends;
      end();
    }
    errno = fault_->error;
    return kind == FaultKind::cut && is_write ? Fate::half_then_fails : Fate::fails;
  }

  int error() {
    const std::lock_guard lock(mutex_);
    return fault_ ? fault_->error : EIO;
  }

  // Records what a power failure would lose: bytes that were written but not synced. Keeps a separate
  // descriptor, so that the file is found even after a rename.
  void note_written(int fd) {
    if (!is_set_) return;
    const std::lock_guard lock(mutex_);
    struct stat info {};
    if (!fault_ || fault_->kind != FaultKind::power || ::fstat(fd, &info) != 0) return;
    if (!unsynced_.contains(info.st_ino)) unsynced_[info.st_ino] = ::dup(fd);
  }
  void note_synced(int fd) {
    if (!is_set_) return;
    const std::lock_guard lock(mutex_);
    struct stat info {};
    if (::fstat(fd, &info) != 0) return;
    if (const auto found = unsynced_.find(info.st_ino); found != unsynced_.end()) {
      ::close(found->second);
      unsynced_.erase(found);
    }
  }

  [[noreturn]] void end() {
    for (const auto& [file, fd] : unsynced_) {
      if (::ftruncate(fd, 0) != 0) continue;
    }
    ::_exit(kCrashExitCode);
  }

 private:
  Plan() {
    if (const char* text = std::getenv(kVariable); text != nullptr && *text != '\0') {
      fault_ = parse_file_fault(text);
      is_set_ = true;
    }
  }

  bool is_lack_of_space() const { return fault_->error == ENOSPC || fault_->error == EDQUOT; }

  std::atomic<bool> is_set_ = false;
  std::atomic<int64_t> operations_ = 0;
  std::mutex mutex_;
  std::optional<FileFault> fault_;
  std::map<ino_t, int> unsynced_;
};

// Makes the call, or skips it when it is to fail.
template <class Call>
int run(bool needs_space, const Call& call) {
  if (Plan::instance().next(needs_space, /*is_write=*/false) == Fate::fails) return -1;
  int result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace

FileFault parse_file_fault(std::string_view text) {
  FileFault fault;
  const char* const end = text.data() + text.size();
  auto [at, problem] = std::from_chars(text.data(), end, fault.operation);
  if (problem == std::errc() && fault.operation > 0) {
    if (at != end && *at == '+') {
      fault.lasting = true;
      at++;
    }
    const std::string_view what =
        at != end && *at == ':' ? std::string_view(at + 1, end) : std::string_view();
    for (const auto& [name, error] : kErrors) {
      if (what == name) {
        fault.error = error;
        return fault;
      }
    }
    for (const auto& [name, kind] : kKinds) {
      if (what == name) {
        fault.kind = kind;
        return fault;
      }
    }
  }
  throw ConfigError(concat(kVariable, "=", text,
                           ": is not a file fault; give one like 17:ENOSPC, 17+:EIO, 17:cut or ",
                           "17:crash (this is a testing aid: unset it for a real run)"));
}

void set_file_fault(std::optional<FileFault> fault) { Plan::instance().set(fault); }

int64_t count_file_operations() { return Plan::instance().operations(); }

namespace calls {

int open(const std::filesystem::path& path, int flags) {
  // O_NONBLOCK: opening a named pipe instead of a file would wait.
  return run((flags & O_CREAT) != 0,
             [&] { return ::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0666); });
}
namespace {

// `call` writes that many bytes of the data.
template <class Call>
ssize_t run_write(int fd, size_t size, const Call& call) {
  Plan& plan = Plan::instance();
  const Fate fate = plan.next(/*needs_space=*/true, /*is_write=*/true);
  if (fate == Fate::fails) return -1;
  const size_t part = fate == Fate::usual ? size : (size + 1) / 2;
  ssize_t written = call(part);
  while (written < 0 && errno == EINTR) written = call(part);
  plan.note_written(fd);
  if (fate == Fate::half_then_ends) plan.end();
  if (fate == Fate::half_then_fails) {
    errno = plan.error();
    return -1;
  }
  return written;
}

}  // namespace

ssize_t write(int fd, const char* data, size_t size) {
  return run_write(fd, size, [&](size_t part) { return ::write(fd, data, part); });
}

ssize_t write_at(int fd, const char* data, size_t size, off_t offset) {
  return run_write(fd, size, [&](size_t part) { return ::pwrite(fd, data, part, offset); });
}

int sync(int fd) {
  const int result = run(/*needs_space=*/false, [&] { return ::fsync(fd); });
  if (result == 0) Plan::instance().note_synced(fd);
  return result;
}

int close(int fd) {
  const bool fails = Plan::instance().next(/*needs_space=*/false, /*is_write=*/false) == Fate::fails;
  const int error = errno, result = ::close(fd);
  if (!fails) return result;
  errno = error;
  return -1;
}

int truncate(int fd, off_t size) {
  return run(/*needs_space=*/false, [&] { return ::ftruncate(fd, size); });
}

int allocate(int fd, off_t size) {
  return run(/*needs_space=*/true, [&] {
    errno = ::posix_fallocate(fd, 0, size);
    return errno == 0 ? 0 : -1;
  });
}

int rename(const std::filesystem::path& from, const std::filesystem::path& to) {
  return run(/*needs_space=*/false, [&] { return ::rename(from.c_str(), to.c_str()); });
}

int symlink(const std::filesystem::path& target, const std::filesystem::path& path) {
  return run(/*needs_space=*/true, [&] { return ::symlink(target.c_str(), path.c_str()); });
}

int unlink(const std::filesystem::path& path) {
  return run(/*needs_space=*/false, [&] { return ::unlink(path.c_str()); });
}

int mkdir(const std::filesystem::path& path) {
  return run(/*needs_space=*/true, [&] { return ::mkdir(path.c_str(), 0777); });
}

int rmdir(const std::filesystem::path& path) {
  return run(/*needs_space=*/false, [&] { return ::rmdir(path.c_str()); });
}

bool is_lack_of_room(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

}  // namespace calls

}  // namespace trainer
