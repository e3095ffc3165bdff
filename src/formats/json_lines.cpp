#include "formats/json_lines.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <string_view>
#include <system_error>

namespace trainer {

bool is_json_lines(const std::filesystem::path& file) {
  constexpr std::array<std::string_view, 5> kOthers{".csv", ".tsv", ".parquet", ".gz", ".zst"};
  std::error_code ignored;
  if (std::ranges::find(kOthers, file.extension().string()) != kOthers.end()) return false;
  if (!std::filesystem::exists(file, ignored)) return file.string().find_first_of("*?[") == std::string::npos;
  if (std::filesystem::is_directory(file, ignored)) return false;
  if (!std::filesystem::is_regular_file(file, ignored)) return true;  // a pipe is read once
  std::ifstream in(file, std::ios::binary);
  char first = 0;
  while (in.get(first) && std::string_view(" \t\r\n\xef\xbb\xbf").find(first) != std::string_view::npos) {
  }
  return !in || first != '[';
}

}  // namespace trainer
