#include "hub/download_files.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"

#include "base/progress.h"
#include "base/threads.h"
#include "hub/blob_download.h"
#include "hub/server.h"

namespace trainer::hub {
namespace {

constexpr int64_t kSmall = 8'000'000, kAtOnce = 8;

class FileDownloads {
 public:
  FileDownloads(const Settings& settings, const Name& name, const CachedRepository& repository,
                const CheckedName& commit, Progress& progress)
      : settings_(settings), name_(name), repository_(repository), commit_(commit), progress_(progress) {}

  void get_all(const std::vector<RemoteFile>& files) {
    std::vector<RemoteFile> small, large;
    for (const RemoteFile& file : files)
      (file.size >= 0 && file.size <= kSmall ? small : large).push_back(file);
    get_at_once(small);
    Server server(settings_, name_, &stop_);
    for (const RemoteFile& file : large) get(server, file);
  }

 private:
  void get_at_once(const std::vector<RemoteFile>& files) {
    std::atomic<size_t> next = 0;
    const auto work = [&](int64_t) {
      try {
        Server server(settings_, name_, &stop_);
        for (size_t i = next++; i < files.size() && !stop_; i = next++) get(server, files[i]);
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!failure_) failure_ = std::current_exception();
        stop_ = true;
      }
    };
    {
      std::vector<std::jthread> threads;
      const int64_t wanted = std::min(kAtOnce, static_cast<int64_t>(files.size()));
      if (wanted < 2 || start_threads(threads, wanted, work) == 0) work(0);
    }
    if (failure_) std::rethrow_exception(failure_);
  }

  void get(Server& server, const RemoteFile& file) {
    Location location = server.locate(commit_, file.path);
    // A mirror may have ETags of its own.
    if (location.hash.empty()) location.hash = file.hash();
    if (location.size < 0) location.size = file.size;
    if (!file.hash().empty() && location.hash != file.hash())
      throw HubError(concat(name_.id, "/", file.path, ": the Hugging Face Hub names two hashes of it, ",
                            file.hash(), " and ", location.hash, "; is HF_ENDPOINT right?"));
    const CheckedName blob = location.hash.empty() ? name_without_hash(commit_, file.path) : location.hash;
    BlobDownload({settings_, name_, repository_, commit_, file.path, location, blob}, progress_, stop_).run();
    repository_.link(commit_, file.path, blob);
  }

  const Settings& settings_;
  const Name& name_;
  const CachedRepository& repository_;
  const CheckedName& commit_;
  Progress& progress_;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  std::exception_ptr failure_;
};

}  // namespace

void download_files(const Settings& settings, const Name& name, const CachedRepository& repository,
                    const CheckedName& commit, const std::vector<RemoteFile>& files) {
  constexpr int64_t kMost = int64_t{1} << 62;  // whatever a server states
  int64_t total = 0;
  bool known = true;
  for (const RemoteFile& file : files) {
    total = std::min(total + std::max<int64_t>(file.size, 0), kMost);
    known = known && file.size >= 0;
  }
  log::info(concat(name.id, "@", commit.text().substr(0, 7), ": downloading ", files.size(),
                   files.size() == 1 ? " file" : " files", known ? ", " + bytes_string(total) : "", ", to ",
                   settings.cache.string()));
  const auto start = std::chrono::steady_clock::now();
  {
    Progress progress("downloading " + name.id, known ? total : 0, ProgressUnit::bytes);
    try {
      FileDownloads(settings, name, repository, commit, progress).get_all(files);
    } catch (const FormatError& error) {  // writing
      throw HubError(concat(
          error.what(),
          "; what was downloaded stays and is resumed. HF_HUB_CACHE can name a folder on another disk"));
    }
  }
  log::info(concat(name.id, ": downloaded in ", duration_string(seconds_since(start))));
}

}  // namespace trainer::hub
