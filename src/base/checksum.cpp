#include "base/checksum.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <system_error>
#include <unistd.h>
#include <vector>
#include <xxhash.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/progress.h"

namespace trainer {
namespace {

constexpr size_t kPiece = size_t{1} << 20;

std::string digits(XXH64_hash_t hash) {
  std::string text(16, '0');
  for (int i = 0; i < 16; i++) text[static_cast<size_t>(i)] = "0123456789abcdef"[hash >> (60 - 4 * i) & 15];
  return text;
}

}  // namespace

std::string checksum(std::string_view bytes) { return digits(XXH3_64bits(bytes.data(), bytes.size())); }

RunningChecksum::RunningChecksum() : state_(XXH3_createState(), &XXH3_freeState) {
  XXH3_64bits_reset(state_.get());
}

void RunningChecksum::add(std::string_view bytes) {
  XXH3_64bits_update(state_.get(), bytes.data(), bytes.size());
}

std::string RunningChecksum::digits() const { return trainer::digits(XXH3_64bits_digest(state_.get())); }

std::string file_checksum(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw FormatError(concat(path.string(), ": cannot be opened: ", std::strerror(errno)));
  std::error_code ignored;
  Progress shown("checking " + path.filename().string(),
                 static_cast<int64_t>(std::filesystem::file_size(path, ignored)), ProgressUnit::bytes);
  RunningChecksum sum;
  std::vector<char> piece(kPiece);
  ssize_t size = 0;
  do {
    size = ::read(fd, piece.data(), piece.size());
    if (size > 0) sum.add({piece.data(), static_cast<size_t>(size)});
    shown.add(std::max<ssize_t>(size, 0));
  } while (size > 0 || (size < 0 && errno == EINTR));
  const int error = errno;
  ::close(fd);
  if (size < 0) throw FormatError(concat(path.string(), ": cannot be read: ", std::strerror(error)));
  return sum.digits();
}

}  // namespace trainer
