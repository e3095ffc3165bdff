// The cache of huggingface_hub: models--ORG--NAME/{refs,snapshots,blobs,trees}, .locks/.
// https://huggingface.co/docs/huggingface_hub/guides/manage-cache
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/checked_name.h"
#include "hub/listing.h"
#include "hub/name.h"

namespace trainer::hub {

// The name without a revision that a folder of the cache stands for ("models--google--flan-t5-xl").
std::optional<Name> name_of_folder(const std::string& folder);

// One repository in the cache. What writes throws FormatError when the cache cannot be written.
class CachedRepository {
 public:
  // Throws FormatError when the name's revision is none: it becomes a path.
  CachedRepository(const std::filesystem::path& cache, const Name& name);

  // The commit that the name's revision stood for when it was downloaded last; empty when it is not known
  // here.
  CheckedName commit() const;
  void keep_commit(const CheckedName& commit) const;

  std::filesystem::path snapshot(const CheckedName& commit) const { return folder_ / "snapshots" / commit; }
  // `name`: the hash of the content, or what stands for it.
  std::filesystem::path blob(const CheckedName& name) const { return folder_ / "blobs" / name; }
  // Returns whether this file of the snapshot is there; false for links that lead nowhere.
  bool has(const CheckedName& commit, const CheckedName& path) const;
  // Makes the link of the snapshot to the blob.
  void link(const CheckedName& commit, const CheckedName& path, const CheckedName& blob_name) const;

  // The list of files that was kept for a commit.
  std::optional<Listing> listing(const CheckedName& commit) const;
  void keep_listing(const Listing& listing) const;

  std::filesystem::path lock_file(const CheckedName& blob_name) const;
  // Makes the folders that downloads need.
  void prepare() const;

 private:
  std::filesystem::path locks() const { return cache_ / ".locks" / folder_.filename(); }
  std::filesystem::path reference() const { return folder_ / "refs" / reference_; }

  std::filesystem::path cache_, folder_;
  CheckedName commit_;     // the revision, if it is a commit
  CheckedName reference_;  // else the branch or tag
};

// Names of the same kind in the cache.
std::vector<std::string> cached_ids(const std::filesystem::path& cache, Kind kind);

// Held by one process or thread at a time; others wait, and say so now and then. Where the file system knows
// no locks, it is held by all.
class BlobLock {
 public:
  // `what`: is downloaded under the lock; `blob`: its files, whose names begin so, change while that goes on.
  // Throws FormatError when another process holds the lock for longer than `patience` without changing them.
  BlobLock(const std::filesystem::path& file, const std::string& what, const std::filesystem::path& blob,
           std::chrono::milliseconds patience = std::chrono::minutes(10));
  ~BlobLock();
  BlobLock(const BlobLock&) = delete;
  BlobLock& operator=(const BlobLock&) = delete;
  // False where the file system knows no locks.
  bool is_exclusive() const { return is_exclusive_; }

 private:
  void wait(const std::filesystem::path& file, const std::string& what, const std::filesystem::path& blob,
            std::chrono::milliseconds patience);

  int fd_ = -1;
  bool is_exclusive_ = true;
};

}  // namespace trainer::hub
