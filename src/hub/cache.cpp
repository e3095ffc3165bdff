#include "hub/cache.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <sys/file.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"

#include "base/special_files.h"

namespace trainer::hub {
namespace fs = std::filesystem;
namespace {

using namespace std::chrono_literals;

const char* prefix_of(Kind kind) { return kind == Kind::model ? "models--" : "datasets--"; }

std::string folder_name(const Name& name) {
  std::string id = name.id;
  id.replace(id.find('/'), 1, "--");
  return prefix_of(name.kind) + id;
}

// As write_atomically(), also where several processes write the same file at once.
void write_shared(const fs::path& file, const std::string& content) {
  static std::atomic<int> next = 0;
  fs::path temporary = file;
  temporary += concat(".", ::getpid(), "-", next++, ".tmp");
  write_atomically(temporary, content);
  move_entry(temporary, file);
}

constexpr const char* kCacheTag =
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# This file is a cache directory tag created by huggingface_hub.\n"
    "# For information about cache directory tags, see:\n"
    "#\thttps://bford.info/cachedir/\n";

}  // namespace

std::optional<Name> name_of_folder(const std::string& folder) {
  for (const Kind kind : {Kind::model, Kind::dataset}) {
    const std::string prefix = prefix_of(kind);
    if (!folder.starts_with(prefix)) continue;
    std::string id = folder.substr(prefix.size());
    const size_t dashes = id.find("--");
    if (dashes == std::string::npos) return std::nullopt;
    return parse_name(kind, id.replace(dashes, 2, "/"));
  }
  return std::nullopt;
}

CachedRepository::CachedRepository(const fs::path& cache, const Name& name) : cache_(cache) {
  const auto folder = CheckedName::file(folder_name(name));
  const auto reference = CheckedName::path(name.revision.empty() ? "main" : name.revision);
  if (!folder || !reference)
    throw FormatError(
        concat(one_line(name.text(), 80), ": ",
               folder ? "the revision is no branch, tag or commit" : "is no name on the Hugging Face Hub"));
  folder_ = cache / *folder;
  reference_ = *reference;
  commit_ = CheckedName::commit(name.revision).value_or(CheckedName());
}

CheckedName CachedRepository::commit() const {
  if (!commit_.empty()) return commit_;
  std::error_code ignored;
  if (!fs::is_regular_file(reference(), ignored)) return {};
  std::ifstream file(reference());
  std::string commit;
  file >> commit;
  return CheckedName::commit(commit).value_or(CheckedName());
}

void CachedRepository::keep_commit(const CheckedName& commit) const {
  if (!commit_.empty() || this->commit() == commit) return;
  make_directories(reference().parent_path());
  write_shared(reference(), commit.text());
}

bool CachedRepository::has(const CheckedName& commit, const CheckedName& path) const {
  std::error_code ignored;
  return fs::is_regular_file(snapshot(commit) / path, ignored);
}

void CachedRepository::link(const CheckedName& commit, const CheckedName& path,
                            const CheckedName& blob_name) const {
  const fs::path pointer = snapshot(commit) / path;
  make_link(blob(blob_name).lexically_relative(pointer.parent_path()), pointer);
}

std::optional<Listing> CachedRepository::listing(const CheckedName& commit) const {
  const fs::path file = folder_ / "trees" / (commit.text() + ".json");
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return std::nullopt;
  try {
    return read_tree(read_file(file), commit);
  } catch (const FormatError& error) {  // it can be asked for again
    log::debug(concat(file.string(), ": is not used: ", error.what()));
    return std::nullopt;
  }
}

void CachedRepository::keep_listing(const Listing& listing) const {
  const std::string text = tree_text(listing);
  if (text.empty()) return;
  make_directories(folder_ / "trees");
  write_shared(folder_ / "trees" / (listing.commit.text() + ".json"), text);
}

fs::path CachedRepository::lock_file(const CheckedName& blob_name) const {
  return locks() / (blob_name.text() + ".lock");
}

void CachedRepository::prepare() const {
  make_directories(folder_ / "blobs");
  make_directories(folder_ / "snapshots");
  make_directories(locks());
  std::error_code ignored;
  if (!fs::exists(cache_ / "CACHEDIR.TAG", ignored)) write_shared(cache_ / "CACHEDIR.TAG", kCacheTag);
}

std::vector<std::string> cached_ids(const fs::path& cache, Kind kind) {
  std::vector<std::string> ids;
  std::error_code error;
  for (fs::directory_iterator at(cache, error), end; !error && at != end; at.increment(error)) {
    const auto name = name_of_folder(at->path().filename().string());
    if (name && name->kind == kind) ids.push_back(name->id);
  }
  return ids;
}

namespace {

// Changes while the blob is being downloaded.
std::string state_of(const fs::path& blob) {
  std::string state;
  std::error_code error;
  const std::string begin = blob.filename().string();
  for (fs::directory_iterator at(blob.parent_path(), error), end; !error && at != end; at.increment(error)) {
    struct stat info {};
    if (!at->path().filename().string().starts_with(begin) || ::stat(at->path().c_str(), &info) != 0)
      continue;
    state +=
        concat(info.st_ino, " ", info.st_size, " ", info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec, "\n");
  }
  return state;
}

}  // namespace

BlobLock::BlobLock(const fs::path& file, const std::string& what, const fs::path& blob,
                   std::chrono::milliseconds patience) {
  const auto still_there = [&] {
    struct stat ours {
    }, theirs{};
    return ::fstat(fd_, &ours) == 0 && ::stat(file.c_str(), &theirs) == 0 && ours.st_ino == theirs.st_ino;
  };
  do {  // until the locked file is the one that others see
    if (fd_ >= 0) ::close(fd_);
    fd_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0664);
    if (fd_ < 0) throw FormatError(concat(file.string(), ": cannot be opened: ", std::strerror(errno)));
    wait(file, what, blob, patience);
  } while (is_exclusive_ && !still_there());
}

void BlobLock::wait(const fs::path& file, const std::string& what, const fs::path& blob,
                    std::chrono::milliseconds patience) {
  using Clock = std::chrono::steady_clock;
  auto said = Clock::now() - 8s, looked = said, changed = Clock::now();
  std::string state;
  while (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) {
      is_exclusive_ = false;
      return;
    }
    const auto now = Clock::now();
    if (now - looked > std::min<std::chrono::nanoseconds>(1s, patience / 4)) {
      looked = now;
      if (std::string seen = state_of(blob); seen != state) {
        state = std::move(seen);
        changed = now;
      }
    }
    if (now - changed > patience) {
      ::close(std::exchange(fd_, -1));
      throw FormatError(concat(what, ": another process holds ", file.string(),
                               ", and has downloaded nothing for ",
                               duration_string(std::chrono::duration<double>(patience).count()),
                               "; end it (fuser -v shows which it is), and start again"));
    }
    if (now - said > 10s) {
      log::info(concat(what, ": another process downloads it; waiting"));
      said = now;
    }
    std::this_thread::sleep_for(100ms);
  }
}

BlobLock::~BlobLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace trainer::hub
