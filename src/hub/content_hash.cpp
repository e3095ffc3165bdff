#include "hub/content_hash.h"

#include <array>

#include "trainer/base/strings.h"

namespace trainer::hub {
namespace {

const uint8_t* as_bytes(std::string_view text) { return reinterpret_cast<const uint8_t*>(text.data()); }

}  // namespace

std::optional<ContentHash> ContentHash::of_kind(const std::string& expected, int64_t size) {
  const bool is_hex = expected.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!is_hex || (expected.size() != 64 && expected.size() != 40)) return std::nullopt;
  return ContentHash(expected.size() == 64, size);
}

ContentHash::ContentHash(bool is_sha256, int64_t size) : is_sha256_(is_sha256) {
  sha256_init(&sha256_);
  sha1_init(&sha1_);
  if (!is_sha256) add(concat("blob ", size, std::string_view("\0", 1)));
}

void ContentHash::add(std::string_view bytes) {
  if (is_sha256_) {
    sha256_update(&sha256_, bytes.size(), as_bytes(bytes));
  } else {
    sha1_update(&sha1_, bytes.size(), as_bytes(bytes));
  }
}

std::string ContentHash::digits() {
  std::array<uint8_t, SHA256_DIGEST_SIZE> digest{};
  const size_t size = is_sha256_ ? SHA256_DIGEST_SIZE : SHA1_DIGEST_SIZE;
  is_sha256_ ? sha256_digest(&sha256_, size, digest.data()) : sha1_digest(&sha1_, size, digest.data());
  constexpr const char* kHex = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < size; i++) text += {kHex[digest[i] >> 4], kHex[digest[i] & 15]};
  return text;
}

}  // namespace trainer::hub
