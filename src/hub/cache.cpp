#include "hub/cache.h"

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

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"

#include "base/special_files.h"

namespace trainer::hub {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::ordered_json;
using namespace std::chrono_literals;

const char* prefix_of(Kind kind) { return kind == Kind::model ? "models--" : "datasets--"; }

std::string folder_name(const Name& name) {
  std::string id = name.id;
  id.replace(id.find('/'), 1, "--");
  return prefix_of(name.kind) + id;
}

RemoteFile read_entry(const std::string& path, const Json& entry) {
  RemoteFile file;
  file.path = path;
  file.size = entry.at("size").get<int64_t>();
  file.blob_id = entry.at("blob_id").get<std::string>();
  file.sha256 = entry.value("lfs_sha256", "");
  file.xet_hash = entry.value("xet_hash", "");
  return file;
}

Json as_entry(const RemoteFile& file) {
  Json entry{{"size", file.size}, {"blob_id", file.blob_id}};
  if (!file.sha256.empty()) {
    entry["lfs_sha256"] = file.sha256;
    entry["lfs_size"] = file.size;
  }
  if (!file.xet_hash.empty()) entry["xet_hash"] = file.xet_hash;
  return entry;
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

CachedRepository::CachedRepository(const fs::path& cache, const Name& name)
    : cache_(cache), folder_(cache / folder_name(name)), name_(name) {}

std::string CachedRepository::commit() const {
  if (is_commit(name_.revision)) return name_.revision;
  std::ifstream file(folder_ / "refs" / (name_.revision.empty() ? "main" : name_.revision));
  std::string commit;
  file >> commit;
  return is_commit(commit) ? commit : "";
}

void CachedRepository::keep_commit(const std::string& commit) const {
  if (is_commit(name_.revision) || this->commit() == commit) return;
  const fs::path file = folder_ / "refs" / (name_.revision.empty() ? "main" : name_.revision);
  make_directories(file.parent_path());
  write_shared(file, commit);
}

bool CachedRepository::has(const std::string& commit, const std::string& path) const {
  std::error_code ignored;
  return fs::is_regular_file(snapshot(commit) / path, ignored);
}

void CachedRepository::link(const std::string& commit, const std::string& path,
                            const std::string& etag) const {
  const fs::path pointer = snapshot(commit) / path;
  make_link(fs::path(blob(etag)).lexically_relative(pointer.parent_path()), pointer);
}

std::optional<Listing> CachedRepository::listing(const std::string& commit) const {
  const fs::path file = folder_ / "trees" / (commit + ".json");
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return std::nullopt;
  try {
    const Json tree = Json::parse(read_file(file));
    if (tree.at("format_version") != 1) return std::nullopt;
    Listing listing;
    listing.commit = commit;
    for (const auto& [path, entry] : tree.at("files").items())
      listing.files.push_back(read_entry(path, entry));
    return listing;
  } catch (const std::exception& error) {  // it can be asked for again
    log::debug(concat(file.string(), ": is not used: ", error.what()));
    return std::nullopt;
  }
}

void CachedRepository::keep_listing(const Listing& listing) const {
  Json files = Json::object();
  for (const RemoteFile& file : listing.files) {
    if (file.size < 0 || file.blob_id.empty()) return;  // a server that says less
    files[file.path] = as_entry(file);
  }
  make_directories(folder_ / "trees");
  write_shared(folder_ / "trees" / (listing.commit + ".json"),
               Json{{"format_version", 1}, {"files", files}}.dump(1));
}

fs::path CachedRepository::lock_file(const std::string& etag) const {
  return cache_ / ".locks" / folder_.filename() / (etag + ".lock");
}

void CachedRepository::prepare() const {
  make_directories(folder_ / "blobs");
  make_directories(folder_ / "snapshots");
  make_directories(lock_file("").parent_path());
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

BlobLock::BlobLock(const fs::path& file, const std::string& what) {
  const auto still_there = [&] {
    struct stat ours {
    }, theirs{};
    return ::fstat(fd_, &ours) == 0 && ::stat(file.c_str(), &theirs) == 0 && ours.st_ino == theirs.st_ino;
  };
  auto said = std::chrono::steady_clock::now() - 8s;
  do {  // until the locked file is the one that others see
    if (fd_ >= 0) ::close(fd_);
    fd_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0664);
    if (fd_ < 0) throw FormatError(concat(file.string(), ": cannot be opened: ", std::strerror(errno)));
    while (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      if (errno != EWOULDBLOCK) {
        is_exclusive_ = false;
        return;
      }
      if (std::chrono::steady_clock::now() - said > 10s) {
        log::info(concat(what, ": another process downloads it; waiting"));
        said = std::chrono::steady_clock::now();
      }
      std::this_thread::sleep_for(100ms);
    }
  } while (!still_there());
}

BlobLock::~BlobLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace trainer::hub
