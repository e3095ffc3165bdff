#include "hub/listing.h"

#include <unordered_set>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

namespace trainer::hub {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr int64_t kLargestFile = int64_t{1} << 50;
constexpr int64_t kTreeVersion = 1;

[[noreturn]] void refuse(const std::string& why) { throw FormatError(why); }

std::string quoted(const std::string& text) { return concat("'", one_line(text, 80), "'"); }

// "" when the key is missing or null.
std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return "";
  if (!found->is_string()) refuse(concat("a file's ", key, " is no text"));
  return found->get<std::string>();
}

int64_t size_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer()) return -1;
  if (found->is_number_unsigned() && found->get<uint64_t>() > uint64_t{INT64_MAX}) return -1;
  return stated_size(found->get<int64_t>());
}

// The name of a blob: it becomes a path.
CheckedName hash_of(const Json& object, const char* key, const CheckedName& path) {
  const std::string text = text_of(object, key);
  if (text.empty()) return {};
  const auto hash = CheckedName::hash(text);
  if (!hash) refuse(concat("the ", key, " of ", path, " is ", quoted(text), ", which is no hash"));
  return *hash;
}

CheckedName path_of(const std::string& text) {
  const auto path = CheckedName::path(text);
  if (!path) refuse(concat("it lists a file ", quoted(text), ", which is no path in a repository"));
  return *path;
}

RemoteFile read_sibling(const Json& sibling) {
  if (!sibling.is_object()) refuse("an entry of its siblings is no object");
  RemoteFile file;
  file.path = path_of(text_of(sibling, "rfilename"));
  file.size = size_of(sibling, "size");
  file.blob_id = hash_of(sibling, "blobId", file.path);
  if (const auto lfs = sibling.find("lfs"); lfs != sibling.end() && lfs->is_object()) {
    file.sha256 = hash_of(*lfs, "sha256", file.path);
    if (const int64_t size = size_of(*lfs, "size"); size >= 0) file.size = size;
  }
  file.xet_hash = text_of(sibling, "xetHash");
  return file;
}

RemoteFile read_entry(const std::string& path, const Json& entry) {
  if (!entry.is_object()) refuse("an entry of its files is no object");
  RemoteFile file;
  file.path = path_of(path);
  file.size = size_of(entry, "size");
  file.blob_id = hash_of(entry, "blob_id", file.path);
  file.sha256 = hash_of(entry, "lfs_sha256", file.path);
  file.xet_hash = text_of(entry, "xet_hash");
  if (file.size < 0 || file.blob_id.empty()) refuse(concat(file.path, " has no size or no hash"));
  return file;
}

OrderedJson as_entry(const RemoteFile& file) {
  OrderedJson entry{{"size", file.size}, {"blob_id", file.blob_id.text()}};
  if (!file.sha256.empty()) {
    entry["lfs_sha256"] = file.sha256.text();
    entry["lfs_size"] = file.size;
  }
  if (!file.xet_hash.empty()) entry["xet_hash"] = file.xet_hash;
  return entry;
}

// What is no JSON is no object either.
Json parsed(const std::string& text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_page = first != std::string::npos && text[first] == '<';
  if (!json.is_object()) refuse(is_page ? "it is a page for people" : "it is no JSON object");
  return json;
}

}  // namespace

int64_t stated_size(int64_t bytes) { return bytes >= 0 && bytes <= kLargestFile ? bytes : -1; }

Listing read_listing(const std::string& answer) {
  const Json info = parsed(answer);
  const auto commit = CheckedName::commit(text_of(info, "sha"));
  if (!commit) refuse("it names no commit");
  const auto siblings = info.find("siblings");
  if (siblings == info.end() || !siblings->is_array()) refuse("it has no list of siblings");
  Listing listing{*commit, {}};
  listing.files.reserve(siblings->size());
  std::unordered_set<std::string> paths;
  for (const Json& sibling : *siblings) {
    const RemoteFile& file = listing.files.emplace_back(read_sibling(sibling));
    if (!paths.insert(file.path.text()).second) refuse(concat("it lists ", file.path, " twice"));
  }
  return listing;
}

std::string tree_text(const Listing& listing) {
  OrderedJson tree{{"format_version", kTreeVersion}, {"files", OrderedJson::object()}};
  // Added at the end: the keys are known to differ, and looking for each takes quadratic time.
  auto& files = tree["files"].get_ref<OrderedJson::object_t&>();
  for (const RemoteFile& file : listing.files) {
    if (file.size < 0 || file.blob_id.empty()) return "";
    files.emplace_back(file.path.text(), as_entry(file));
  }
  return tree.dump(1);
}

Listing read_tree(const std::string& text, const CheckedName& commit) {
  const Json tree = parsed(text);
  const auto version = tree.find("format_version"), files = tree.find("files");
  if (version == tree.end() || *version != kTreeVersion) refuse("it has another format_version");
  if (files == tree.end() || !files->is_object()) refuse("it has no files");
  Listing listing{commit, {}};
  for (const auto& [path, entry] : files->items()) listing.files.push_back(read_entry(path, entry));
  return listing;
}

}  // namespace trainer::hub
