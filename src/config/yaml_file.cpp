#include <algorithm>
#include <map>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/file_facts.h"
#include "base/not_text.h"
#include "base/yaml_text.h"
#include "config/layer.h"
#include "config/presets.h"
#include "config/schema.h"
#include "config/value.h"

namespace trainer::config {
namespace {

namespace fs = std::filesystem;

// Of an empty value yaml-cpp knows no place of its own: the key's is used.
Place place_of_value(const YAML::Node& key, const YAML::Node& value, const Where& where) {
  return where(value.IsNull() ? key.Mark() : value.Mark());
}

// Calls `visit` for each entry of a mapping; a key that comes twice, or is no text, becomes a problem.
void for_each_entry(
    const std::string& section, const YAML::Node& mapping, const Where& where, Problems& problems,
    const std::function<void(const std::string&, const YAML::Node&, const YAML::Node&)>& visit) {
  std::map<std::string, YAML::Mark> seen;
  for (const auto& entry : mapping) {
    if (!entry.first.IsScalar()) {
      problems.push_back({where(entry.first.Mark()), section.empty() ? "top level" : section,
                          "a key must be a name, found " + describe(entry.first)});
      continue;
    }
    const std::string name = entry.first.Scalar();
    const auto [first, is_new] = seen.emplace(name, entry.first.Mark());
    if (is_new) {
      visit(name, entry.first, entry.second);
    } else {
      problems.push_back({where(entry.first.Mark()), section.empty() ? name : section + "." + name,
                          concat("given twice; the first is at line ", first->second.line + 1)});
    }
  }
}

std::string given_twice(const RepeatedKey& key) {
  return concat("given twice; the first is at line ", key.first.line + 1);
}

class FileReader {
 public:
  explicit FileReader(Problems& problems) : problems_(problems) {}

  void read(const fs::path& file, const Place& asked_from) {
    std::error_code ignored;
    const fs::path identity = fs::weakly_canonical(file, ignored);
    if (std::find(open_.begin(), open_.end(), identity) != open_.end()) {
      std::vector<std::string> chain;
      for (const fs::path& path : open_) chain.push_back(path.filename().string());
      chain.push_back(identity.filename().string());
      problems_.push_back({asked_from, "extends",
                           "files extend each other in a circle: " + join(chain, " -> "), ExitCode::usage,
                           ErrorCode::config_file});
      return;
    }
    if (!has_entry(file)) {
      const char* advice = open_.empty() ? "; `trainer config --list` names the presets" : "";
      problems_.push_back({asked_from, "", concat(file.string(), ": there is no such file", advice),
                           ExitCode::usage, ErrorCode::config_file});
      return;
    }
    if (open_.size() == kMostLevels || files_ == kMostFiles) {
      if (!is_refused_) {
        problems_.push_back({asked_from, "extends",
                             concat("more than ", kMostLevels, " levels or ", kMostFiles,
                                    " files in all; a file counts each time that it is extended")});
      }
      is_refused_ = true;
      return;
    }
    files_++;
    open_.push_back(identity);
    read_document(file, asked_from);
    open_.pop_back();
  }

  std::vector<Layer> layers;

 private:
  void read_document(const fs::path& file, const Place& asked_from) {
    const Where where = [&file](const YAML::Mark& mark) {
      return Place{file.string(), mark.line + 1, mark.column + 1};
    };
    std::string text;
    try {
      text = read_text(file);
    } catch (const Error& error) {
      problems_.push_back({asked_from, "", error.what(), ExitCode::usage, ErrorCode::config_file});
      return;
    }
    if (text.starts_with("\xef\xbb\xbf")) text.erase(0, 3);  // a byte order mark
    try {
      const YAML::Node root = parse_yaml(text);
      read_root(file, text, root, where);
      for (const RepeatedKey& key : repeated_keys(text)) {
        if (key.depth > 2) problems_.push_back({where(key.mark), key.name, given_twice(key)});
      }
    } catch (const YAML::Exception& error) {
      problems_.push_back({where(error.mark), "", "malformed YAML: " + yaml_problem(error, text),
                           ExitCode::usage, ErrorCode::config_file});
    }
  }

  void read_root(const fs::path& file, const std::string& text, const YAML::Node& root, const Where& where) {
    if (root.IsNull()) return;
    if (!root.IsMap()) {
      problems_.push_back({where(root.Mark()), "",
                           "expected sections and keys (`training:`), found " + describe(root),
                           ExitCode::usage, ErrorCode::config_file});
      return;
    }
    Layer layer;
    for_each_entry(
        "", root, where, problems_,
        [&](const std::string& name, const YAML::Node& key, const YAML::Node& value) {
          if (name == "extends") {
            read_extended(file, value, where);
          } else if (const Section* section = find_section(name)) {
            read_whole_section(*section, text, key, value, where, layer);
          } else {
            layer.push_back({"", name, value, where(key.Mark()), place_of_value(key, value, where)});
          }
        });
    layers.push_back(std::move(layer));
  }

  void read_whole_section(const Section& section, const std::string& text, const YAML::Node& key,
                          const YAML::Node& value, const Where& where, Layer& layer) {
    if (section.optional && value.IsNull() && nothing_follows(text, key.Mark())) {
      problems_.push_back({where(key.Mark()), section.name,
                           concat("is empty: write `", section.name, ": {}` to use its defaults, or `",
                                  section.name, ": null` to leave it out")});
      return;
    }
    layer.push_back({section.name, "", value, where(key.Mark()), place_of_value(key, value, where)});
    if (value.IsMap()) read_section(section.name, value, where, layer, problems_);
  }

  // "lora:" and then the end of the line or a comment: written so, it is not clear what is meant.
  static bool nothing_follows(const std::string& text, const YAML::Mark& key) {
    const size_t colon = text.find(':', static_cast<size_t>(key.pos));
    if (colon == std::string::npos) return false;
    const size_t next = text.find_first_not_of(" \t\r", colon + 1);
    return next == std::string::npos || text[next] == '\n' || text[next] == '#';
  }

  void read_extended(const fs::path& file, const YAML::Node& value, const Where& where) {
    if (value.IsNull()) return;
    const std::vector<YAML::Node> names = value.IsSequence()
                                              ? std::vector<YAML::Node>(value.begin(), value.end())
                                              : std::vector<YAML::Node>{value};
    for (const YAML::Node& name : names) {
      const Place at = where(name.Mark());
      if (name.IsScalar() && !name.Scalar().empty()) {
        read(find_extended(file, name.Scalar()), at);
      } else {
        problems_.push_back({at, "extends", "expected a path or a list of paths, found " + describe(name)});
      }
    }
  }

  // A path relative to the file that names it, else a preset of the program; `robust` also stands for
  // robust.yaml.
  static fs::path find_extended(const fs::path& file, const std::string& name) {
    const fs::path path = (file.parent_path() / name).lexically_normal();
    fs::path with_ending = path;
    with_ending += ".yaml";
    if (fs::exists(path)) return path;
    return fs::exists(with_ending) ? with_ending : find_preset(name).value_or(path);
  }

  // What is extended twice is read twice, so that the number of files may double with each level.
  static constexpr size_t kMostLevels = 32, kMostFiles = 256;

  Problems& problems_;
  std::vector<fs::path> open_;
  size_t files_ = 0;
  bool is_refused_ = false;
};

}  // namespace

void read_section(const std::string& section, const YAML::Node& mapping, const Where& where, Layer& layer,
                  Problems& problems) {
  for_each_entry(
      section, mapping, where, problems,
      [&](const std::string& name, const YAML::Node& key, const YAML::Node& value) {
        layer.push_back({section, name, value, where(key.Mark()), place_of_value(key, value, where)});
      });
}

std::vector<Layer> read_layers(const fs::path& file, Problems& problems) {
  FileReader reader(problems);
  reader.read(has_entry(file) ? file : find_preset(file).value_or(file), {});
  return std::move(reader.layers);
}

}  // namespace trainer::config
