// The files of a repository, as the hub and the cache list them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/checked_name.h"

namespace trainer::hub {

// A file of a repository at a commit.
struct RemoteFile {
  CheckedName path;
  int64_t size = -1;     // -1: the server does not say
  CheckedName blob_id;   // its git SHA-1; may be empty
  CheckedName sha256;    // a large file's; empty: the file is in git itself
  std::string xet_hash;  // is only kept for other programs

  // The hash by which the hub names the content; empty: it does not.
  const CheckedName& hash() const { return sha256.empty() ? blob_id : sha256; }
};

// The files of a repository at a commit.
struct Listing {
  CheckedName commit;
  std::vector<RemoteFile> files;
};

// A size that a server states: -1 when it is none that a file can have.
int64_t stated_size(int64_t bytes);

// Reads the hub's answer, {"sha": ..., "siblings": [{"rfilename": ...}, ...]}. Takes linear time. Throws
// FormatError with the reason, "it names no commit".
Listing read_listing(const std::string& answer);

// The list as huggingface_hub keeps it in trees/COMMIT.json; "" where the server said too little for that.
std::string tree_text(const Listing& listing);
// Throws FormatError for what is no such text.
Listing read_tree(const std::string& text, const CheckedName& commit);

}  // namespace trainer::hub
