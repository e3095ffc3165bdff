// The cache of huggingface_hub: models--ORG--NAME/{refs,snapshots,blobs,trees}, .locks/.
// https://huggingface.co/docs/huggingface_hub/guides/manage-cache
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "hub/name.h"

namespace trainer::hub {

// A file of a repository at a commit.
struct RemoteFile {
  std::string path;
  int64_t size = -1;     // -1: the server does not say
  std::string blob_id;   // its git SHA-1
  std::string sha256;    // a large file's; empty: the file is in git itself
  std::string xet_hash;  // is only kept for other programs
};

// The files of a repository at a commit.
struct Listing {
  std::string commit;
  std::vector<RemoteFile> files;
};

// The name without a revision that a folder of the cache stands for ("models--google--flan-t5-xl").
std::optional<Name> name_of_folder(const std::string& folder);

// One repository in the cache. What writes throws FormatError when the cache cannot be written.
class CachedRepository {
 public:
  CachedRepository(const std::filesystem::path& cache, const Name& name);

  // The commit that the name's revision stood for when it was downloaded last; "" when it is not known here.
  std::string commit() const;
  void keep_commit(const std::string& commit) const;

  std::filesystem::path snapshot(const std::string& commit) const { return folder_ / "snapshots" / commit; }
  std::filesystem::path blob(const std::string& etag) const { return folder_ / "blobs" / etag; }
  // Returns whether this file of the snapshot is there; false for links that lead nowhere.
  bool has(const std::string& commit, const std::string& path) const;
  // Makes the link of the snapshot to the blob.
  void link(const std::string& commit, const std::string& path, const std::string& etag) const;

  // The list of files that was kept for a commit.
  std::optional<Listing> listing(const std::string& commit) const;
  void keep_listing(const Listing& listing) const;

  std::filesystem::path lock_file(const std::string& etag) const;
  // Makes the folders that downloads need.
  void prepare() const;

 private:
  std::filesystem::path cache_, folder_;
  Name name_;
};

// Names of the same kind in the cache.
std::vector<std::string> cached_ids(const std::filesystem::path& cache, Kind kind);

// Held by one process or thread at a time; others wait, and say so now and then. Where the file system knows
// no locks, it is held by all.
class BlobLock {
 public:
  BlobLock(const std::filesystem::path& file, const std::string& what);
  ~BlobLock();
  BlobLock(const BlobLock&) = delete;
  BlobLock& operator=(const BlobLock&) = delete;
  // False where the file system knows no locks.
  bool is_exclusive() const { return is_exclusive_; }

 private:
  int fd_ = -1;
  bool is_exclusive_ = true;
};

}  // namespace trainer::hub
