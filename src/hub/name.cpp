#include "hub/name.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <regex>
#include <string_view>

#include "trainer/base/strings.h"

#include "base/checked_name.h"
#include "hub/cache.h"
#include "hub/settings.h"

namespace trainer::hub {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kScheme = "hf://", kDatasets = "datasets/";

bool has_bad_part(const std::string& path) {
  const fs::path as_path(path);
  return as_path.is_absolute() ||
         std::ranges::any_of(as_path, [](const fs::path& part) { return part == ".." || part == "."; });
}

bool is_id(const std::string& id) {
  static const std::regex form("[A-Za-z0-9][A-Za-z0-9_.-]{0,95}/[A-Za-z0-9_][A-Za-z0-9_.-]{0,95}");
  return std::regex_match(id, form) && id.find("..") == std::string::npos &&
         id.find("--") == std::string::npos;
}

// Returns whether `id` ends like a file, as no repository does: "data/train.jsonl" is a missing
// path.
bool looks_like_file(const std::string& id) {
  static const std::regex ending(
      ".*\\.(jsonl?|csv|tsv|txt|parquet|yaml|yml|safetensors|gguf|bin)(\\.(gz|zst))?");
  return std::regex_match(id, ending);
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

}  // namespace

bool is_revision(const std::string& text) {
  const auto is_allowed = [](unsigned char c) {
    return c < 0x80 && (std::isalnum(c) != 0 || std::string_view("_.+/-").find(c) != std::string_view::npos);
  };
  return CheckedName::path(text) && std::ranges::all_of(text, is_allowed) && text.find_first_of(".+-") != 0;
}

bool is_commit(const std::string& revision) { return CheckedName::commit(revision).has_value(); }

std::string Name::text() const {
  return concat(id, revision.empty() ? "" : "@", revision, path.empty() ? "" : "/", path);
}

std::optional<Name> parse_name(Kind kind, const std::string& text) {
  constexpr size_t kLongest = 2000;  // no name has more, and regular expressions are slow with long texts
  if (text.size() > kLongest) return std::nullopt;
  std::string rest = text;
  if (rest.starts_with(kScheme)) rest.erase(0, kScheme.size());
  if (kind == Kind::dataset && text.starts_with(kScheme) && rest.starts_with(kDatasets))
    rest.erase(0, kDatasets.size());
  Name name;
  name.kind = kind;
  const size_t first = rest.find('/');
  if (first == std::string::npos) return std::nullopt;
  const size_t end = rest.find_first_of("@/", first + 1);
  name.id = rest.substr(0, end);
  rest = end == std::string::npos ? "" : rest.substr(end);
  if (rest.starts_with('@') && kind == Kind::model) {
    name.revision = rest.substr(1);
  } else if (rest.starts_with('@')) {
    static const std::regex revision("@(refs/(?:convert|pr)/[^/]+|[^/]+)(.*)");
    std::smatch match;
    if (!std::regex_match(rest, match, revision)) return std::nullopt;
    name.revision = match[1];
    rest = match[2];
  }
  const bool has_revision = end != std::string::npos && text.find('@') != std::string::npos;
  if (kind == Kind::dataset && rest.starts_with('/')) name.path = rest.substr(1);
  if (kind == Kind::model && rest.starts_with('/')) return std::nullopt;
  while (name.path.ends_with('/')) name.path.pop_back();
  if (!is_id(name.id) || has_bad_part(name.path)) return std::nullopt;
  if (has_revision && !name.revision.empty() && !is_revision(name.revision)) return std::nullopt;
  if (rest == "@") return std::nullopt;
  return name;
}

std::optional<Name> find_name(Kind kind, const std::string& text) {
  if (text.empty() || is_there(text)) return std::nullopt;
  const std::optional<Name> name = parse_name(kind, text);
  if (!name || text.starts_with(kScheme) || is_commit(name->revision)) return name;
  if (looks_like_file(name->id) || is_there(name->id.substr(0, name->id.find('/')))) return std::nullopt;
  return name;
}

std::optional<Name> name_of(const fs::path& path) {
  if (path.empty()) return std::nullopt;
  const fs::path cache = fs::absolute(cache_folder()).lexically_normal();
  const fs::path inner = fs::absolute(path).lexically_normal().lexically_relative(cache);
  std::vector<std::string> parts;
  for (const fs::path& part : inner) parts.push_back(part.string());
  if (parts.size() < 3 || parts[1] != "snapshots" || !is_commit(parts[2])) return std::nullopt;
  auto name = name_of_folder(parts[0]);
  if (!name) return std::nullopt;
  name->revision = parts[2];
  fs::path in_repository;
  for (size_t i = 3; i < parts.size(); i++) in_repository /= parts[i];
  name->path = in_repository.string();
  if (name->path == ".") name->path.clear();
  if (name->path.ends_with('/')) name->path.pop_back();
  return name;
}

std::string shown(const std::string& path) {
  auto name = name_of(path);
  if (!name) return path;
  name->revision.resize(7);
  return name->text();
}

}  // namespace trainer::hub
