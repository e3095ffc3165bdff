#include "data/data_files.h"

#include <array>
#include <string_view>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/find_files.h"

namespace trainer {
namespace {

constexpr std::array<std::string_view, 13> kEndings{
    ".jsonl",  ".json",      ".csv",      ".tsv",     ".jsonl.gz", ".json.gz", ".csv.gz",
    ".tsv.gz", ".jsonl.zst", ".json.zst", ".csv.zst", ".tsv.zst",  ".parquet"};

}  // namespace

std::vector<std::filesystem::path> data_files(const DataSource& source) {
  std::vector<std::filesystem::path> files = find_files(source.path, kEndings);
  if (!files.empty()) return files;
  std::error_code ignored;
  if (std::filesystem::is_directory(source.path, ignored))
    throw of_family(ErrorCode::data_file, DataError(concat(source.path, ": the folder holds no data files (",
                                                           join({kEndings.begin(), kEndings.end()}), ")")));
  if (source.path.find_first_of("*?[") != std::string::npos)
    throw of_family(ErrorCode::data_file, DataError(concat(source.path, ": the pattern matches no file")));
  throw of_family(ErrorCode::data_file,
                  DataError(concat(source.path, ": cannot be opened: No such file or directory")));
}

}  // namespace trainer
