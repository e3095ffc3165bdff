#include "hub/choose_files.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <fnmatch.h>
#include <map>
#include <set>
#include <unordered_set>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/text.h"

namespace trainer::hub {
namespace {

// Data files, by their ending; of compressed ones the ending below.
bool is_data_file(const std::string& path) {
  std::string_view plain = path;
  for (const std::string_view ending : {".gz", ".zst"}) {
    if (plain.ends_with(ending)) plain.remove_suffix(ending.size());
  }
  const bool has_ending = path.ends_with(".parquet") ||
                          std::ranges::any_of(std::array{".json", ".jsonl", ".csv", ".tsv"},
                                              [&](const char* ending) { return plain.ends_with(ending); });
  static const std::set<std::string> about{"dataset_infos.json", "dataset_info.json", "dataset_dict.json",
                                           "config.json",        "state.json",        "metadata.json"};
  return has_ending && !about.contains(path.substr(path.rfind('/') + 1)) && !path.starts_with('.');
}

std::vector<std::string> words_of(const std::string& path) {
  std::vector<std::string> words(1);
  for (const char c : path) {
    if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
      words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  return words;
}

// "train", "validation" or "test" if the path names a split; else "".
std::string split_of(const std::string& path) {
  static const std::map<std::string, std::string> splits{
      {"train", "train"},    {"training", "train"}, {"validation", "validation"}, {"valid", "validation"},
      {"val", "validation"}, {"dev", "validation"}, {"eval", "validation"},       {"test", "test"},
      {"testing", "test"},   {"heldout", "test"}};
  const std::vector<std::string> words = words_of(path);
  for (auto word = words.rbegin(); word != words.rend(); ++word) {  // the file's own name says it best
    if (const auto found = splits.find(*word); found != splits.end()) return found->second;
  }
  return "";
}

// Returns how many characters at the beginning have the form: d is a digit, h one of a hash; 0: none have.
size_t length_of(std::string_view form, std::string_view text) {
  const auto has = [](char c, char kind) {
    const bool is_digit = c >= '0' && c <= '9';
    return kind == 'd' ? is_digit : kind == 'h' ? is_digit || (c >= 'a' && c <= 'f') : c == kind;
  };
  return text.size() >= form.size() && std::ranges::equal(text.substr(0, form.size()), form, has)
             ? form.size()
             : 0;
}

// Files of one set of rows have one pattern: "data/train-*.parquet" of
// "data/train-00000-of-00002-ab12.parquet". Without shards, each number counts: "part*.jsonl".
std::string pattern_of(const std::string& path) {
  constexpr std::string_view kShard = "-ddddd-of-ddddd", kHash = "-hhhhhhhhhhhhhhhh";
  const size_t begin = path.rfind('/') + 1;  // 0 without a folder
  const std::string_view file = std::string_view(path).substr(begin);
  std::string with_shards, with_numbers;
  for (size_t at = 0, shard = 0; at < file.size(); at += std::max<size_t>(shard, 1)) {
    shard = length_of(kShard, file.substr(at));
    if (shard > 0) shard += length_of(kHash, file.substr(at + shard));
    with_shards += shard > 0 ? "-*" : std::string(1, file[at]);
  }
  bool in_number = false;
  for (const char c : file) {
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit) with_numbers += c;
    if (is_digit && !in_number) with_numbers += '*';
    in_number = is_digit;
  }
  return path.substr(0, begin) + (with_shards != file ? with_shards : with_numbers);
}

std::vector<RemoteFile> of_split(const std::vector<RemoteFile>& files, const std::string& split) {
  std::vector<RemoteFile> out;
  std::ranges::copy_if(files, std::back_inserter(out),
                       [&](const RemoteFile& file) { return split_of(file.path.text()) == split; });
  return out;
}

// Returns the names that continue `name`, one choice on each line.
std::string choices(Name name, const std::set<std::string>& paths) {
  if (is_commit(name.revision)) name.revision.clear();
  std::vector<std::string> texts;
  for (const std::string& path : paths) texts.push_back((name.path = path, name.text()));
  return join_some(texts, 12, "\n  ");
}

std::set<std::string> patterns_of(const std::vector<RemoteFile>& files) {
  std::set<std::string> patterns;
  for (const RemoteFile& file : files) patterns.insert(pattern_of(file.path.text()));
  return patterns;
}

// Returns the words for a split in file names, the best first; "" is a name without any.
std::array<const char*, 2> kinds_of(Split split) {
  return split == Split::train ? std::array{"train", ""} : std::array{"validation", "test"};
}

const char* rows_of(Split split) { return split == Split::train ? "training" : "validation or test"; }

std::vector<RemoteFile> choose_split(const Name& name, const std::vector<RemoteFile>& files, Split split) {
  if (split == Split::any) return files;
  std::vector<RemoteFile> chosen;
  for (const char* kind : kinds_of(split)) {
    chosen = of_split(files, kind);
    if (!chosen.empty()) break;
  }
  if (chosen.empty()) {
    throw DataError(concat("no file of the data set ", name.text(), " is named as ", rows_of(split),
                           " data; give one of\n  ", choices(name, patterns_of(files))));
  }
  const std::set<std::string> patterns = patterns_of(chosen);
  if (patterns.size() > 1) {
    throw DataError(concat("the data set ", name.text(), " has several sets of rows; give one or some of\n  ",
                           choices(name, patterns)));
  }
  return chosen;
}

std::vector<RemoteFile> data_files_in(const std::vector<RemoteFile>& files, const std::string& folder) {
  std::vector<RemoteFile> out;
  std::ranges::copy_if(files, std::back_inserter(out), [&](const RemoteFile& file) {
    return file.path.text().starts_with(folder) && is_data_file(file.path.text());
  });
  return out;
}

constexpr const char* kKinds = "jsonl, json, csv, tsv, parquet";

[[noreturn]] void refuse_empty(const Name& name) {
  throw DataError(concat("the data set ", name.text(), " has no files of rows (", kKinds,
                         "); the Hugging Face Hub may have converted it: try ", name.id,
                         "@refs/convert/parquet"));
}

bool is_pattern(const std::string& path) { return path.find_first_of("*?[") != std::string::npos; }

// Returns whether a path has a pattern: * is any part of a name, ** any folders, also none.
bool matches(const std::string& pattern, const std::string& path) {
  const size_t folders = pattern.find("**/");
  if (pattern.find("**") == std::string::npos)
    return ::fnmatch(pattern.c_str(), path.c_str(), FNM_PATHNAME) == 0;
  if (::fnmatch(pattern.c_str(), path.c_str(), 0) == 0) return true;
  return folders != std::string::npos && matches(std::string(pattern).erase(folders, 3), path);
}

// Many patterns. A card may name each of its files.
class Patterns {
 public:
  explicit Patterns(const std::vector<std::string>& all) {
    for (const std::string& one : all) {
      if (one.find_first_of("*?[\\") == std::string::npos) {
        paths_.insert(one);
      } else if (paths_.insert(one).second) {
        patterns_.push_back(one);
      }
    }
  }
  bool match(const std::string& path) const {
    return paths_.contains(path) ||
           std::ranges::any_of(patterns_, [&](const std::string& one) { return matches(one, path); });
  }

 private:
  std::unordered_set<std::string> paths_;
  std::vector<std::string> patterns_;
};

// The subset that the path names, or the default one; nullptr: names of files and folders decide.
const Subset* subset_of(const Name& name, const std::vector<Subset>& subsets) {
  const auto found = std::ranges::find_if(subsets, [&](const Subset& subset) {
    return name.path.empty() ? subset.is_default : subset.name == name.path;
  });
  if (found != subsets.end()) return &*found;
  if (!name.path.empty() || subsets.empty()) return nullptr;
  std::set<std::string> names;
  for (const Subset& subset : subsets) names.insert(subset.name);
  throw DataError(concat("the data set ", name.text(), " has several subsets; give one or some of\n  ",
                         choices(name, names)));
}

// The splits of a subset that are meant: one of this very name, else all whose names say it.
std::vector<CardSplit> splits_of(const Subset& subset, Split split) {
  if (split == Split::any) return subset.splits;
  std::vector<CardSplit> named, chosen;
  for (const char* kind : kinds_of(split)) {
    std::ranges::copy_if(subset.splits, std::back_inserter(named),
                         [&](const CardSplit& known) { return known.name == kind; });
    std::ranges::copy_if(subset.splits, std::back_inserter(chosen),
                         [&](const CardSplit& known) { return split_of(known.name) == kind; });
    if (!chosen.empty()) break;
  }
  return named.empty() ? chosen : named;
}

CardSplit choose_card_split(const Name& name, const Subset& subset, Split split) {
  const std::vector<CardSplit> splits = splits_of(subset, split);
  CardSplit chosen;
  std::set<std::string> patterns;
  for (const CardSplit& known : splits.empty() ? subset.splits : splits) {
    chosen.name += (chosen.name.empty() ? "" : ", ") + known.name;
    chosen.patterns.insert(chosen.patterns.end(), known.patterns.begin(), known.patterns.end());
  }
  patterns.insert(chosen.patterns.begin(), chosen.patterns.end());
  if (splits.empty())
    throw DataError(concat("the data set ", name.text(), " has no ", rows_of(split), " data: its splits are ",
                           chosen.name, "; give one or some of\n  ", choices(name, patterns)));
  if (splits.size() > 1 && split != Split::any)
    throw DataError(concat("the data set ", name.text(), " has several splits of ", rows_of(split), " data, ",
                           chosen.name, "; give one or some of\n  ", choices(name, patterns)));
  return chosen;
}

std::vector<RemoteFile> choose_in_subset(const Name& name, const Listing& listing, const Subset& subset,
                                         Split split) {
  if (subset.splits.empty()) {
    const std::vector<RemoteFile> files = data_files_in(listing.files, subset.folder);
    if (files.empty()) refuse_empty(name);
    return choose_split(name, files, split);
  }
  const CardSplit wanted = choose_card_split(name, subset, split);
  const Patterns patterns(wanted.patterns);
  std::vector<RemoteFile> chosen;
  std::string other;
  for (const RemoteFile& file : listing.files) {
    const std::string& path = file.path.text();
    if (!patterns.match(path)) continue;
    if (is_data_file(path)) {
      chosen.push_back(file);
    } else {
      other = path;
    }
  }
  if (!chosen.empty()) return chosen;
  throw DataError(
      concat("the data set ", name.text(), ": its README.md says that ", wanted.name, " is ",
             join_some(wanted.patterns),
             other.empty() ? ", and no file is named so" : concat("; ", other, " is not read, only ", kKinds),
             "; the Hugging Face Hub may have converted it: try ", name.id, "@refs/convert/parquet"));
}

[[noreturn]] void refuse_path(const Name& name, const Listing& listing) {
  std::vector<std::string> known;
  for (const RemoteFile& file : data_files_in(listing.files, "")) known.push_back(file.path.text());
  const std::string near = closest(name.path, known);
  throw DataError(concat("the data set ", name.id, " has no file '", name.path, "'",
                         near.empty()
                             ? concat("; it has ", known.empty() ? "no data files" : join_some(known))
                             : concat("; did you mean ", name.id, "/", near, "?")));
}

}  // namespace

bool depends_on_subsets(const Name& name, const Listing& listing) {
  const bool is_file =
      std::ranges::any_of(listing.files, [&](const RemoteFile& file) { return file.path == name.path; });
  return !is_file && !is_pattern(name.path);
}

std::vector<RemoteFile> choose_data_files(const Name& name, const Listing& listing, Split split,
                                          const std::vector<Subset>& subsets) {
  const bool all = name.path.empty() && split == Split::any;
  if (!all && depends_on_subsets(name, listing)) {
    if (const Subset* subset = subset_of(name, subsets))
      return choose_in_subset(name, listing, *subset, split);
  }
  if (name.path.empty()) {
    const std::vector<RemoteFile> files = data_files_in(listing.files, "");
    if (files.empty()) refuse_empty(name);
    return choose_split(name, files, split);
  }
  std::vector<RemoteFile> chosen;
  const bool pattern = is_pattern(name.path);
  for (const RemoteFile& file : listing.files) {
    const std::string& path = file.path.text();
    const bool found = pattern && is_data_file(path) && matches(name.path, path);
    if (file.path == name.path || found) chosen.push_back(file);
  }
  if (chosen.empty() && !pattern) {
    const std::vector<RemoteFile> in_folder = data_files_in(listing.files, name.path + "/");
    if (!in_folder.empty()) chosen = choose_split(name, in_folder, split);
  }
  if (chosen.empty()) refuse_path(name, listing);
  return chosen;
}

}  // namespace trainer::hub
