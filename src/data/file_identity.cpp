#include "data/file_identity.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/stat.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/checksum.h"

namespace trainer {

FileIdentity FileIdentity::of(const std::filesystem::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0)
    throw of_family(ErrorCode::data_file,
                    DataError(concat(path.string(), ": cannot be opened: ", std::strerror(errno))));
  return {info.st_dev, info.st_ino, info.st_size, info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec};
}

std::string content_fingerprint(std::string_view content, const FileIdentity& identity) {
  constexpr size_t kPieces = 64, kPiece = 4096;
  const size_t stride = std::max(content.size() / kPieces, kPiece);
  std::string seen;
  for (size_t at = 0; at < content.size(); at += stride) seen += content.substr(at, kPiece);
  if (content.size() > kPiece) seen += content.substr(content.size() - kPiece);
  return concat(identity.bytes, " bytes, changed ", identity.changed_at, ", xxh3 ", checksum(seen));
}

}  // namespace trainer
