#include "base/not_text.h"

#include <algorithm>
#include <array>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/strings.h"

#include "base/text.h"
#include "base/utf8.h"

namespace trainer {
namespace {

struct Magic {
  std::string_view begin;
  const char* what;
};
using namespace std::string_view_literals;

constexpr const char* kLfs = "is the pointer of Git LFS, not the file itself; get it with git lfs pull";

// In this order: the mark of UTF-32 begins like that of UTF-16.
constexpr std::array<Magic, 18> kNotText{
    {{"\xff\xfe\0\0"sv, "is UTF-32; save the file as UTF-8"},
     {"\0\0\xfe\xff"sv, "is UTF-32; save the file as UTF-8"},
     {"\xff\xfe"sv, "is UTF-16; save the file as UTF-8"},
     {"\xfe\xff"sv, "is UTF-16; save the file as UTF-8"},
     {"\x1f\x8b"sv, "is compressed with gzip; let its name end in .gz (rows.jsonl.gz)"},
     {"\x28\xb5\x2f\xfd"sv, "is compressed with zstd; let its name end in .zst (rows.jsonl.zst)"},
     {"PAR1"sv, "is a Parquet file; let its name end in .parquet"},
     {"PK\x03\x04"sv, "is a zip archive; unpack it (unzip)"},
     {"\xfd"
      "7zXZ"sv,
      "is compressed with xz; unpack it (xz -d), or pack it with gzip or zstd"},
     {"BZh"sv, "is compressed with bzip2; unpack it (bzip2 -d), or pack it with gzip or zstd"},
     {"\x04\x22\x4d\x18"sv, "is compressed with lz4; unpack it (lz4 -d), or pack it with gzip or zstd"},
     {"7z\xbc\xaf\x27\x1c"sv, "is a 7z archive; unpack it"},
     {"ARROW1"sv, "is an Arrow file; save it as Parquet or JSON lines (in Python: dataset.to_parquet)"},
     {"\xff\xff\xff\xff"sv,  // a stream, as Hugging Face datasets keeps them
      "is an Arrow file; save it as Parquet or JSON lines (in Python: dataset.to_parquet)"},
     {"SQLite format 3"sv, "is an SQLite database; save its rows as JSON lines"},
     {"version https://git-lfs"sv, kLfs},
     {"version https://hawser"sv, kLfs},  // as early versions of it wrote
     {"/annex/objects/"sv, "is the pointer of git-annex, not the file itself; get it with git annex get"}}};

bool begins_with_page(std::string_view begin) {
  const std::string lower = lower_case(begin.substr(0, 64));
  const size_t first = std::min(lower.find_first_not_of(" \t\r\n"), lower.size());
  const std::string_view text = std::string_view(lower).substr(first);
  return text.starts_with("<!doctype html") || text.starts_with("<html");
}

std::string at_line(std::string_view text, size_t byte) {
  return concat(" at line ", 1 + std::ranges::count(text.substr(0, byte), '\n'));
}

}  // namespace

std::string not_text(std::string_view begin) {
  for (const auto& [mark, what] : kNotText) {
    if (begin.starts_with(mark)) return what;
  }
  // Without a mark: the characters of JSON and of the names of columns have one byte that is not 0.
  constexpr size_t kLook = 8;
  if (begin.size() >= kLook) {
    bool even = true, odd = true;
    for (size_t i = 0; i < kLook; i++) (i % 2 == 0 ? even : odd) &= begin[i] == '\0';
    if (even != odd) return "is UTF-16; save the file as UTF-8";
  }
  if (begins_with_page(begin))
    return "is a page of HTML, as a download gives that was not allowed or did not find the file";
  if (begin.size() > 262 && begin.substr(257, 5) == "ustar") return "is a tar archive; unpack it (tar xf)";
  return "";
}

std::string other_kind(std::string_view begin) {
  const std::string what = not_text(begin);
  // How files of rows may be packed does not go for this one.
  const bool of_rows = what.find("let its name end") != std::string::npos;
  return of_rows ? what.substr(0, what.find(';')) + "; unpack it, or download it again" : what;
}

std::string why_no_text(std::string_view text) {
  if (std::string what = other_kind(text); !what.empty()) return what;
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos)
    return concat("is no text: it has a byte 0", at_line(text, zero), "; is it the right file?");
  if (const size_t valid = valid_utf8_prefix(text); valid < text.size())
    return concat("is not UTF-8", at_line(text, valid), "; save the file as UTF-8");
  return "";
}

std::string read_text(const std::filesystem::path& path) {
  std::string text = read_file(path);
  if (const std::string what = why_no_text(text); !what.empty())
    throw FormatError(concat(path.string(), ": ", what));
  return text;
}

}  // namespace trainer
