#include "cli/pages.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <regex>
#include <sstream>

#include "trainer/base/error_code.h"
#include "trainer/base/files.h"
#include "trainer/base/strings.h"

#include "base/file_facts.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/aligned_tables.h"

namespace trainer::cli {
namespace {

namespace fs = std::filesystem;

// [memory.md](memory.md#search) -> memory.md; pictures go.
std::string without_links(const std::string& text) {
  static const std::regex kPicture(R"(!\[[^\]]*\]\([^)]*\)\n?)"), kLink(R"(\[([^\]]*)\]\([^)\s]*\))");
  const bool pictures = text.find("![") != std::string::npos;
  return std::regex_replace(pictures ? std::regex_replace(text, kPicture, "") : text, kLink, "$1");
}

// Marks of what is generated are lines of their own.
std::string without_comments(const std::string& text) {
  std::istringstream lines(text);
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("<!--")) out += line + "\n";
  }
  return out;
}

// "Which rank for LoRA?" -> "which-rank-for-lora"
std::string anchor_of(const std::string& heading) {
  std::string anchor;
  for (const unsigned char c : heading) {
    if (std::isalnum(c) != 0 || c == '_' || c == '-') {
      anchor += static_cast<char>(std::tolower(c));
    } else if (c == ' ') {
      anchor += '-';
    }
  }
  return anchor;
}

// "## NaN and Inf", or in the questions "**The loss is NaN.** The step is skipped".
std::string heading_in(const std::string& line, bool questions) {
  const size_t text = line.find_first_not_of('#');
  if (text != 0 && text != std::string::npos && line[text] == ' ') return line.substr(text + 1);
  if (!questions || !line.starts_with("**")) return "";
  const size_t end = line.find("**", 2);
  return end == std::string::npos ? "" : line.substr(2, end - 2);
}

}  // namespace

std::vector<std::string> page_names() {
  std::vector<std::string> names;
  const auto folder = find_shipped("docs");
  if (!folder) return names;
  for (const auto& entry : fs::directory_iterator(*folder)) {
    // README is the list of the others.
    if (entry.path().extension() == ".md" && entry.path().stem() != "README")
      names.push_back(entry.path().stem());
  }
  std::ranges::sort(names);
  return names;
}

std::optional<std::string> page_text(const std::string& name) {
  if (name.empty() || name.find('/') != std::string::npos) return std::nullopt;
  const auto file = find_shipped(concat("docs/", name, ".md"));
  if (!file) return std::nullopt;
  return without_links(without_comments(read_file(*file)));
}

std::vector<PageSection> sections_of(const std::string& page) {
  std::vector<PageSection> sections;
  const auto text = page_text(page);
  if (!text) return sections;
  std::istringstream lines(*text);
  bool code = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) code = !code;
    if (const std::string heading = code ? "" : heading_in(line, page == "faq"); !heading.empty())
      sections.push_back({page, sections.empty() ? "" : anchor_of(heading), heading, ""});
    if (!sections.empty()) sections.back().text += line + "\n";
  }
  for (PageSection& section : sections)
    section.text.erase(section.text.find_last_not_of('\n') + 1).append("\n");
  return sections;
}

std::string for_terminal(const std::string& markdown) {
  return with_aligned_tables(markdown, width_of_page());
}

size_t width_of_page() {
  constexpr size_t kElsewhere = 100;  // in a file or a pipe
  const size_t width = stdout_terminal().value_or(Terminal{}).width;
  return width == 0 ? kElsewhere : width;
}

std::optional<std::string> error_page(const std::string& code) {
  const auto is_this = [&](ErrorCode known) { return name_of(known) == code; };
  if (std::ranges::none_of(error_codes(), is_this)) return std::nullopt;
  for (const PageSection& section : sections_of("errors")) {
    if (section.heading == code) return for_terminal(concat("# Error ", section.text.substr(3)));
  }
  return std::nullopt;
}

std::vector<std::string> exit_codes() {
  static const std::regex kRow(R"(\| (\d+) \|.*)");
  std::istringstream lines(page_text("errors").value_or(""));
  std::vector<std::string> codes;
  std::smatch row;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_match(line, row, kRow)) codes.push_back(row[1]);
  }
  return codes;
}

// The row of the codes that have none of their own; it comes last.
constexpr const char* kOtherSignals = "| 137 and others above 128 |";

std::optional<std::string> exit_code_page(const std::string& code) {
  constexpr int kSignal = 128, kLast = 255;  // a shell reports the end by a signal as 128 + its number
  const auto page = page_text("errors");
  if (!page || code.empty()) return std::nullopt;
  const bool is_number = code.size() <= 3 && code.find_first_not_of("0123456789") == std::string::npos;
  const bool by_signal = is_number && std::stoi(code) > kSignal && std::stoi(code) <= kLast;
  std::istringstream lines(*page);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(concat("| ", code, " |")) && !(by_signal && line.starts_with(kOtherSignals)))
      continue;
    const std::vector<std::string> cells = cells_of(line);
    const std::string text =
        concat("Exit code ", code, ": ", cells.at(1),
               cells.size() > 2 && !cells[2].empty() ? concat("\n\nRetry the same command? ", cells[2]) : "");
    return join(wrapped(text, width_of_page()), "\n") + "\n";
  }
  return std::nullopt;
}

}  // namespace trainer::cli
