// The hash by which the hub names a file's content.
#pragma once

#include <cstdint>
#include <nettle/sha1.h>
#include <nettle/sha2.h>
#include <optional>
#include <string>
#include <string_view>

namespace trainer::hub {

// SHA-256 of the content, or git's SHA-1 of a blob.
class ContentHash {
 public:
  // `expected`: 64 or 40 hexadecimal digits decide which. nullopt for other texts, which are no hashes of the
  // content.
  static std::optional<ContentHash> of_kind(const std::string& expected, int64_t size);

  void add(std::string_view bytes);
  std::string digits();  // once, after all bytes

 private:
  ContentHash(bool is_sha256, int64_t size);
  bool is_sha256_;
  sha256_ctx sha256_;
  sha1_ctx sha1_;
};

}  // namespace trainer::hub
