#include "cli/help_page.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "trainer/base/error_code.h"
#include "trainer/base/files.h"
#include "trainer/base/strings.h"

#include "base/installed.h"
#include "base/terminal.h"
#include "base/wrap.h"
#include "cli/aligned_tables.h"

namespace trainer::cli {
namespace {

namespace fs = std::filesystem;

// [memory.md](memory.md#search) -> memory.md; pictures go.
std::string without_links(const std::string& text) {
  static const std::regex kPicture(R"(!\[[^\]]*\]\([^)]*\)\n?)"), kLink(R"(\[([^\]]*)\]\([^)\s]*\))");
  return std::regex_replace(std::regex_replace(text, kPicture, ""), kLink, "$1");
}

// The page without links; nothing if there is none of this name.
std::optional<std::string> page_text(const std::string& topic) {
  if (topic.find('/') != std::string::npos) return std::nullopt;
  const auto file = find_shipped(concat("docs/", topic, ".md"));
  if (!file) return std::nullopt;
  return without_links(read_file(*file));
}

size_t width_of_page() {
  constexpr size_t kElsewhere = 100;  // in a file or a pipe
  const size_t width = stdout_terminal().value_or(Terminal{}).width;
  return width == 0 ? kElsewhere : width;
}

}  // namespace

std::vector<HelpTopic> help_topics() {
  std::vector<HelpTopic> topics;
  const auto folder = find_shipped("docs");
  if (!folder) return topics;
  for (const auto& entry : fs::directory_iterator(*folder)) {
    // README is the list of the others.
    if (entry.path().extension() != ".md" || entry.path().stem() == "README") continue;
    std::ifstream file(entry.path());
    std::string title;
    std::getline(file, title);
    topics.push_back({entry.path().stem(), title.starts_with("# ") ? title.substr(2) : title});
  }
  std::ranges::sort(topics, {}, &HelpTopic::name);
  return topics;
}

std::optional<std::string> help_page(const std::string& topic) {
  const auto page = page_text(topic);
  if (!page) return std::nullopt;
  return with_aligned_tables(*page, width_of_page());
}

std::optional<std::string> error_page(const std::string& code) {
  const auto is_this = [&](ErrorCode known) { return name_of(known) == code; };
  if (std::ranges::none_of(error_codes(), is_this)) return std::nullopt;
  const auto page = help_page("errors");
  if (!page) return std::nullopt;
  const size_t begin = page->find(concat("\n## ", code, "\n"));
  if (begin == std::string::npos) return std::nullopt;
  const size_t text = begin + 4, end = page->find("\n## ", text);
  return concat("# Error ", page->substr(text, end == std::string::npos ? end : end - text));
}

std::optional<std::string> exit_code_page(const std::string& code) {
  const auto page = page_text("exit-codes");
  if (!page) return std::nullopt;
  std::istringstream lines(*page);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(concat("| ", code, " |"))) continue;
    const std::vector<std::string> cells = cells_of(line);
    const std::string text =
        concat("Exit code ", code, ": ", cells.at(1),
               cells.size() > 2 && !cells[2].empty() ? concat("\n\nRetry the same command? ", cells[2]) : "");
    return join(wrapped(text, width_of_page()), "\n") + "\n";
  }
  return std::nullopt;
}

}  // namespace trainer::cli
