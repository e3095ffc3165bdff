#include "config/presets.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <string>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/file_facts.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;

// The first sentence of the comment at the top.
std::string purpose_of(const fs::path& file) {
  std::ifstream lines(file);
  std::string comment;
  for (std::string line; std::getline(lines, line) && line.starts_with("# ");) {
    if (!comment.empty()) comment += " ";
    comment += line.substr(2);
  }
  comment += " ";
  return comment.substr(0, comment.find(". "));
}

}  // namespace

std::optional<fs::path> find_preset(const fs::path& name) {
  fs::path path = name.lexically_normal();
  const fs::path folder = path.parent_path();
  if (!path.has_filename() || (!folder.empty() && folder != "configs")) return std::nullopt;
  path = "configs" / path.filename();
  if (path.extension() != ".yaml") path += ".yaml";
  return find_shipped(path);
}

std::string chat_template_file(const std::string& given) {
  std::error_code ignored;
  if (given.empty() || given.find('/') != std::string::npos || fs::exists(given, ignored)) return given;
  const auto shipped = find_shipped(concat("configs/chat_templates/", given, ".jinja"));
  return shipped ? shipped->string() : given;
}

void write_presets(std::ostream& out) {
  const auto folder = find_shipped("configs");
  if (!folder) throw ConfigError("the presets are not there: install the program again", ExitCode::files);
  std::map<std::string, std::string> purposes;
  size_t width = 0;
  for (const auto& entry : fs::directory_iterator(*folder)) {
    if (entry.path().extension() != ".yaml") continue;
    const std::string name = entry.path().filename();
    width = std::max(width, name.size());
    purposes[name] = purpose_of(entry.path());
  }
  for (const auto& [name, purpose] : purposes) {
    out << name << std::string(width - name.size() + 2, ' ') << purpose << "\n";
  }
  out << "\nTo use one: trainer --config NAME key=value ...; or in a file: extends: NAME\n"
      << "The files: " << folder->string() << "\n";
}

}  // namespace trainer
