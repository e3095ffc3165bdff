// The pages of docs/ that come with the program, for reading on a terminal.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace trainer::cli {

// A part of a page: what stands below one heading, or in faq.md one question with its answer.
struct PageSection {
  std::string page;     // "reliability"
  std::string anchor;   // "nan-and-inf", as in links; "" for the beginning of the page
  std::string heading;  // "NaN and Inf"
  std::string text;     // Markdown without links, the heading too

  std::string name() const { return anchor.empty() ? page : page + "#" + anchor; }
};

// Returns the names of the pages ("reliability"), sorted; none if they are not installed.
std::vector<std::string> page_names();

// Returns a page as Markdown without links; nothing if there is none of this name.
std::optional<std::string> page_text(const std::string& name);

// Returns the parts of a page in their order; those of a page that does not exist: none.
std::vector<PageSection> sections_of(const std::string& page);

// Returns Markdown for the width of the terminal (100 columns in a pipe): tables as columns.
std::string for_terminal(const std::string& markdown);
size_t width_of_page();

// Returns what docs/errors.md says of the code of an error, such as "disk-full"; nothing if it is none.
std::optional<std::string> error_page(const std::string& code);

// Returns the exit codes that docs/errors.md lists.
std::vector<std::string> exit_codes();

// Returns what docs/errors.md says of an exit code, such as "5"; nothing if it does not list it.
std::optional<std::string> exit_code_page(const std::string& code);

}  // namespace trainer::cli
