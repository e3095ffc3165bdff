// Downloads the content of one file into the cache: in parallel ranges, resumed, checked by its hash.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <nettle/sha1.h>
#include <nettle/sha2.h>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/checked_name.h"
#include "base/progress.h"
#include "base/special_files.h"
#include "hub/cache.h"
#include "hub/server.h"

namespace trainer::hub {

struct BlobSource {
  const Settings& settings;
  const Name& name;
  const CachedRepository& repository;
  CheckedName commit, path;
  Location location;
  CheckedName blob;  // the name of the content in the cache
};

class BlobDownload {
 public:
  // `stop`: ends it, from another thread.
  BlobDownload(BlobSource source, Progress& progress, const std::atomic<bool>& stop);

  // Returns when the blob is complete, also if another process has downloaded it. What is there when it
  // throws is resumed by the next one.
  void run();

 private:
  struct Range {
    int64_t begin, end;  // end: -1 if the size is unknown
  };

  void open_partial(bool is_exclusive);
  void adopt_prefix();
  void load_state();
  void save_state(bool at_once);
  void require_room() const;
  bool fetch_and_check();
  void fetch_ranges();
  void work(int64_t worker);
  void fetch(Server& server, Range range);
  // One request for what is left of the range; `at` moves with the bytes. Returns why it is not all, or "".
  std::string fetch_once(Server& server, const Range& range, int64_t& at,
                         std::optional<net::Response>& answer);
  void check_part(const net::Response& head, int64_t begin) const;
  void take(const Range& range, std::string_view piece, int64_t& at);
  void relocate(Server& server);
  void restart();
  void fail(std::exception_ptr failure);
  void finish();
  Range range_of(size_t chunk) const;

  BlobSource source_;
  Progress& progress_;
  const std::atomic<bool>& stop_;
  std::filesystem::path blob_, partial_path_, state_path_;
  std::unique_ptr<PartialFile> partial_;
  int64_t size_, chunk_bytes_ = 0;
  bool whole_only_ = false;  // the server knows no ranges
  std::atomic<int64_t> counted_ = 0;

  std::mutex mutex_;
  std::vector<bool> done_;
  size_t next_ = 0;
  std::exception_ptr failure_;
  std::atomic<bool> give_up_ = false;
  std::chrono::steady_clock::time_point saved_{};
};

// The hash by which the hub names a file's content: its SHA-256, or git's SHA-1 of a blob.
class ContentHash {
 public:
  // `expected`: its length decides which.
  ContentHash(const CheckedName& expected, int64_t size);

  void add(std::string_view bytes);
  CheckedName digits();  // once, after all bytes

 private:
  bool is_sha256_;
  sha256_ctx sha256_;
  sha1_ctx sha1_;
};

// Returns the name in the cache of a file of which the hub names no hash: it depends on the commit and the
// path, so that no text of the server becomes a file's name.
CheckedName name_without_hash(const CheckedName& commit, const CheckedName& path);

}  // namespace trainer::hub
