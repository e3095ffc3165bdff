#include "cli/what_next.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/text/chat_template.h"

#include "base/foreign_errors.h"
#include "base/shell_word.h"
#include "base/text.h"
#include "formats/run_status.h"

namespace trainer::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostEntries = 1000;  // of a folder that are looked at
constexpr size_t kMostShown = 5;

// As a user would write it in a shell.
std::string as_argument(const fs::path& path) { return printable(shell_word(path.string())); }

// A file of another program has other sections.
bool looks_like_configuration(const fs::path& file) {
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return false;
  std::ifstream lines(file);
  bool model = false, data = false, extends = false;
  size_t left = 2000;
  for (std::string line; left > 0 && std::getline(lines, line); left--) {
    model |= line.starts_with("model:");
    data |= line.starts_with("data:");
    extends |= line.starts_with("extends:");
  }
  return extends || (model && data);
}

fs::file_time_type last_change(const fs::path& run) {
  std::error_code ignored;
  return fs::last_write_time(run / kStatusFile, ignored);
}

struct FolderContent {
  std::vector<fs::path> configurations, runs;
};

FolderContent look_into(const fs::path& folder) {
  FolderContent found;
  std::error_code error;
  size_t left = kMostEntries;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end && left > 0; left--) {
    const fs::path name = entry->path().filename();
    const fs::path path = folder == "." ? name : entry->path();
    const std::string ending = name.extension();
    if ((ending == ".yaml" || ending == ".yml") && looks_like_configuration(path))
      found.configurations.push_back(path);
    if (name != "runs" && is_run(path)) found.runs.push_back(path);
    entry.increment(error);
  }
  const fs::path runs = folder == "." ? "runs" : folder / "runs";
  std::error_code ignored;
  if (fs::is_directory(runs, ignored)) {
    for (const fs::path& run : find_runs(runs)) found.runs.push_back(run);
  }
  std::ranges::sort(found.configurations);
  return found;
}

// What a run is good for.
std::vector<std::string> about_run(const fs::path& run) {
  const auto now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  RunStatus status;
  try {
    status = read_run_status(run, now);
  } catch (const Error&) {
    return {};
  }
  const std::string name = as_argument(run);
  const std::string steps = status.step > 0 ? concat(", at step ", grouped(status.step)) : "";
  std::vector<std::string> lines{concat("The run ", name, " (", name_of(status.state), steps, "):")};
  const auto add = [&](const std::string& command, const char* what) {
    lines.push_back(concat("  ", padded_right(command, 52), "  ", what));
  };
  const bool runs = status.state == RunPhase::running || status.state == RunPhase::starting;
  if (status.state == RunPhase::finished) {
    if (has_chat_template(run)) add("trainer chat " + name, "talk to the result");
    add(concat("trainer generate ", name, " 'a prompt'"), "answers to prompts");
    add("trainer eval " + name, "loss and scores");
    add("trainer export " + name, "for other programs");
  } else if (!runs) {
    add(concat("trainer --config ", as_argument(run / "config.yaml")),
        "goes on, from the last checkpoint if there is one");
  }
  add("trainer status " + name, runs ? "how far it is" : "how it ended");
  add("trainer report " + name, "its curves, as a page");
  return lines;
}

std::vector<std::string> about_configuration(const fs::path& file) {
  const std::string name = as_argument(file);
  return {concat("The configuration ", name, ":"),
          concat("  ", padded_right("trainer --config " + name, 52), "  trains"),
          concat("  ", padded_right("trainer doctor --config " + name, 52), "  whether the run could start"),
          concat("  ", padded_right("trainer plan --config " + name, 52), "  the memory it needs")};
}

void append(std::vector<std::string>& lines, const std::vector<std::string>& more) {
  lines.insert(lines.end(), more.begin(), more.end());
}

}  // namespace

std::string what_next(const fs::path& folder) {
  std::vector<std::string> lines;
  if (is_run(folder)) append(lines, about_run(folder));
  const FolderContent found = is_run(folder) ? FolderContent{} : look_into(folder);
  for (size_t i = 0; i < std::min(kMostShown, found.configurations.size()); i++)
    append(lines, about_configuration(found.configurations[i]));
  if (found.configurations.size() > kMostShown)
    lines.push_back(concat("  and ", found.configurations.size() - kMostShown, " more configurations"));
  if (!found.runs.empty()) append(lines, about_run(*std::ranges::max_element(found.runs, {}, last_change)));
  if (found.runs.size() > 1)
    lines.push_back(concat("All ", found.runs.size(), " runs here: trainer runs", folder == "." ? " ." : ""));
  if (lines.empty()) {
    lines.push_back(
        "trainer init makes a first configuration from a model and your data; it asks for what it needs.");
    lines.push_back("trainer --config FILE trains.");
  } else {
    lines.push_back("Another configuration: trainer init");
  }
  lines.push_back("trainer --help lists the commands, and trainer help WORD finds what answers a word.");
  return join(lines, "\n");
}

}  // namespace trainer::cli
