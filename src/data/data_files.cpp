#include "data/data_files.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <span>
#include <string_view>
#include <sys/stat.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/checksum.h"
#include "base/file_facts.h"

namespace trainer {
namespace {

constexpr std::array<std::string_view, 13> kEndings{
    ".jsonl",  ".json",      ".csv",      ".tsv",     ".jsonl.gz", ".json.gz", ".csv.gz",
    ".tsv.gz", ".jsonl.zst", ".json.zst", ".csv.zst", ".tsv.zst",  ".parquet"};

// A folder that save_to_disk of the Python package datasets wrote: its JSON files tell of rows in Arrow
// files.
bool saved_by_datasets(const std::filesystem::path& path) {
  std::error_code ignored;
  const auto has = [&](const char* name) { return std::filesystem::is_regular_file(path / name, ignored); };
  return has("dataset_dict.json") || (has("state.json") && has("dataset_info.json"));
}

}  // namespace

std::vector<std::filesystem::path> data_files(const DataSource& source) {
  if (saved_by_datasets(source.path))
    throw of_family(ErrorCode::data_file,
                    DataError(concat(source.path,
                                     ": is a data set in Arrow files, as save_to_disk writes it; "
                                     "save it as Parquet or JSON lines (in Python: "
                                     "datasets.load_from_disk(FOLDER), and to_parquet of what it returns)")));
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

// Size and modification time of the library or program that contains this function.
std::string program_identity() {
  Dl_info library{};
  struct stat info {};
  if (::dladdr(reinterpret_cast<const void*>(&program_identity), &library) == 0 ||
      ::stat(library.dli_fname, &info) != 0)
    return "";
  return concat(info.st_size, " bytes of ", info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec);
}

std::string names_of(const std::vector<DataSource>& sources) {
  std::vector<std::string> names;
  for (const DataSource& source : sources) names.push_back(source.path);
  return join(names);
}

}  // namespace trainer
