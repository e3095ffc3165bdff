#include <string_view>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/strings.h"
#include "trainer/base/version.h"
#include "trainer/formats/checkpoint.h"

#include "base/checksum.h"
#include "formats/checkpoint_manifest.h"
#include "formats/json_fields.h"
#include "formats/json_file.h"

namespace trainer {

namespace fs = std::filesystem;
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kFormatVersion = 1;
constexpr int64_t kMaxBytes = 16'000'000;
constexpr const char* kOwnChecksum = "manifest_xxh3_64";
// Takes the place of the manifest's own checksum while that is computed.
constexpr std::string_view kBlank = "0000000000000000";

bool is_checksum(const std::string& text) {
  return text.size() == kBlank.size() && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// Returns where the digits of the manifest's own checksum begin. write_manifest writes them on the first line
// after the brace.
size_t own_digits(const std::string& text, const std::string& where) {
  const std::string start = concat("{\n  \"", kOwnChecksum, "\": \"");
  if (!text.starts_with(start) || text.size() < start.size() + kBlank.size())
    throw FormatError(concat(where, ": does not begin like a manifest; it is damaged"));
  return start.size();
}

std::string read_bounded(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) throw FormatError(concat(path.string(), ": is missing"));
  if (static_cast<int64_t>(fs::file_size(path, error)) > kMaxBytes)
    throw FormatError(concat(path.string(), ": is larger than any manifest; it is damaged"));
  return read_file(path);
}

}  // namespace

void write_manifest(const fs::path& directory, const Manifest& manifest) {
  Json files = Json::object();
  for (const auto& [name, entry] : manifest.files)
    files[name.text()] = {{"bytes", entry.bytes}, {"xxh3_64", entry.checksum}};
  const Json value{{kOwnChecksum, kBlank},
                   {"format_version", kFormatVersion},
                   {"program_version", kVersion},
                   {"step", manifest.step},
                   {"files", std::move(files)}};
  std::string text = value.dump(2) + "\n";
  text.replace(own_digits(text, kManifestFile), kBlank.size(), checksum(text));
  write_atomically(directory / kManifestFile, text);
}

Manifest read_manifest(const fs::path& directory) {
  const fs::path path = directory / kManifestFile;
  const std::string where = path.string();
  std::string text = read_bounded(path);
  const size_t at = own_digits(text, where);
  const std::string expected = text.substr(at, kBlank.size());
  text.replace(at, kBlank.size(), kBlank);
  if (checksum(text) != expected)
    throw FormatError(concat(where, ": its bytes do not match its checksum; it is damaged"));

  Manifest manifest;
  const Json value = parse_json_object<Json>(text, where);
  const JsonReader read(value, where);
  if (const int64_t version = read.required<int64_t>("format_version"); version != kFormatVersion) {
    throw FormatError(concat(where, ": format_version ", version, " is not known, only ", kFormatVersion,
                             "; use the version of trainer that wrote it"));
  }
  manifest.step = read.required<int64_t>("step");
  const Json files = read.required<Json>("files");
  for (const auto& [name, entry] : files.items()) {
    const std::string place = concat(where, ": files: '", one_line(name, 200), "'");
    const auto path = CheckedName::path(name);
    if (!path) throw FormatError(concat(place, ": is not a file name"));
    if (!entry.is_object()) throw FormatError(concat(place, ": is not an object"));
    const JsonReader fields(entry, place);
    ManifestEntry& file = manifest.files[*path];
    file = {fields.required<int64_t>("bytes"), fields.required<std::string>("xxh3_64")};
    if (file.bytes < 0 || !is_checksum(file.checksum))
      throw FormatError(concat(place, ": has no size and checksum"));
  }
  return manifest;
}

CheckpointWriter::CheckpointWriter(const fs::path& output_dir, int64_t step)
    : temporary_(with_ending(checkpoint_path(output_dir, step), kFilling)),
      path_(checkpoint_path(output_dir, step)),
      step_(step) {
  delete_entry(temporary_);
  try {
    make_directories(temporary_);
  } catch (...) {
    remove_temporary();
    throw;
  }
}

CheckpointWriter::~CheckpointWriter() { remove_temporary(); }

// Does nothing after commit(), which renames the folder.
void CheckpointWriter::remove_temporary() {
  try {
    delete_entry(temporary_);
  } catch (const FormatError& e) {
    log::warning(concat(e.what(), "; the next start removes it"));
  }
}

Checkpoint CheckpointWriter::commit() {
  Checkpoint checkpoint{path_, step_, {}};
  Manifest manifest{step_, {}};
  std::error_code error;
  for (fs::recursive_directory_iterator at(temporary_, error), end; !error && at != end;
       at.increment(error)) {
    const bool is_folder = at->is_directory() && !at->is_symlink();
    if (!is_folder && !at->is_regular_file())
      throw FormatError(concat(at->path().string(), ": only files and folders can be in a checkpoint"));
    sync_entry(at->path());
    if (is_folder) continue;
    const std::string name = at->path().lexically_relative(temporary_).generic_string();
    const auto path = CheckedName::path(name);
    if (!path)
      throw FormatError(concat(at->path().string(), ": its name cannot be in a checkpoint; rename it"));
    const auto bytes = static_cast<int64_t>(at->file_size());
    manifest.files[*path] = {bytes, file_checksum(at->path())};
    checkpoint.files[name] = bytes;
  }
  if (error) throw FormatError(concat(temporary_.string(), ": cannot be read: ", error.message()));
  write_manifest(temporary_, manifest);
  take_name();
  return checkpoint;
}

// A checkpoint that is replaced is kept under another name until the new one has been renamed.
void CheckpointWriter::take_name() {
  std::error_code ignored;
  const fs::path aside = with_ending(path_, kReplacing);
  delete_entry(aside);
  const bool replaces = fs::exists(fs::symlink_status(path_, ignored));  // also a link to nothing
  try {
    if (replaces) move_entry(path_, aside);
    move_entry(temporary_, path_);
    if (replaces) delete_entry(aside);
  } catch (...) {
    if (replaces) remove_checkpoint_litter(path_.parent_path());
    throw;
  }
}

}  // namespace trainer
