// trainer help [TOPIC]
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "trainer/base/error.h"
#include "trainer/base/error_code.h"
#include "trainer/base/files.h"
#include "trainer/base/strings.h"
#include "trainer/base/version.h"

#include "base/file_facts.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/aligned_tables.h"
#include "cli/commands.h"

namespace trainer::cli {
namespace {

// Manual pages, from the help of the commands.

// Text as it stands: no line of it is a request, and a hyphen is the one that can be typed.
std::string escaped_roff(const std::string& text) {
  std::string out;
  bool at_begin = true;
  for (const char c : text) {
    if (at_begin && (c == '.' || c == '\'')) out += "\\&";
    at_begin = c == '\n';
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

std::string upper_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

std::string as_written(const std::string& text) { return concat(".nf\n", escaped_roff(text), "\n.fi\n"); }

void write_options(std::ostringstream& out, const CLI::App& command) {
  out << ".SH OPTIONS\n";
  for (const CLI::Option* option : command.get_options()) {
    const std::string names = option->get_name(false, true);
    const bool has_value = option->get_items_expected_max() > 0;
    const std::string type = has_value ? option->get_type_name() : "";
    const bool positional = option->get_lnames().empty() && option->get_snames().empty();
    out << ".TP\n.B " << escaped_roff(positional ? type : concat(names, type.empty() ? "" : " ", type))
        << "\n"
        << escaped_roff(option->get_description());
    if (!option->get_default_str().empty())
      out << " [default: " << escaped_roff(option->get_default_str()) << "]";
    out << "\n";
  }
}

std::string synopsis(const CLI::App& command, const std::string& name) {
  std::string line = name + " [OPTIONS]";
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_positional()) line += " " + option->get_type_name();
  }
  return line;
}

// Returns the page of a command in the language of man(7), or of the program if `command` is `app` itself.
std::string man_page(const CLI::App& app, const CLI::App& command) {
  const bool whole = &app == &command;
  const std::string name = whole ? "trainer" : "trainer " + command.get_name();
  std::string title = name;
  std::ranges::replace(title, ' ', '-');
  const std::string purpose =
      whole ? "fine-tune language models within the memory there is" : command.get_description();
  std::ostringstream out;
  out << ".TH " << upper_case(escaped_roff(title)) << " 1 \"\" \"trainer " << kVersion
      << "\" \"\"\n.SH NAME\n"
      << escaped_roff(title) << " \\- " << escaped_roff(purpose) << "\n.SH SYNOPSIS\n.B "
      << escaped_roff(whole ? "trainer [OPTIONS] COMMAND ..." : synopsis(command, name)) << "\n";
  if (whole) out << ".SH DESCRIPTION\n" << as_written(command.get_description());
  write_options(out, command);
  if (whole) {
    out << ".SH COMMANDS\n";
    for (const CLI::App* known : listed_commands(app)) {
      out << ".TP\n.B " << escaped_roff(known->get_name()) << "\n"
          << escaped_roff(known->get_description()) << "\n";
    }
  }
  if (const std::string footer = command.get_footer(); !footer.empty())
    out << ".SH NOTES\n" << as_written(footer);
  out << ".SH EXIT STATUS\n0 if all went well. `trainer help exit\\-codes` lists the other codes.\n"
      << ".SH SEE ALSO\n`trainer help` lists pages on data, memory, checkpoints and more.\n";
  return out.str();
}

// The pages of docs/, for reading on a terminal.

struct HelpTopic {
  std::string name;   // "reliability"
  std::string title;  // "Stopping, resuming, checkpoints"
};

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

// Returns the pages that come with the program, by name; none if they are not installed.
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

// Returns a page for the width of the terminal: links as their text, tables as columns. Nothing if there is
// none of this name.
std::optional<std::string> help_page(const std::string& topic) {
  const auto page = page_text(topic);
  if (!page) return std::nullopt;
  return with_aligned_tables(*page, width_of_page());
}

// Returns what docs/errors.md says of the code of an error, such as "disk-full"; nothing if it is none.
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

// Returns what docs/errors.md says of a code, such as "5"; nothing if it does not list it.
std::optional<std::string> exit_code_page(const std::string& code) {
  const auto page = page_text("errors");
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

void list_topics() {
  const std::vector<HelpTopic> topics = help_topics();
  if (topics.empty())
    throw ConfigError("the pages are not there: install the program again", ExitCode::files);
  size_t width = 0;
  for (const HelpTopic& topic : topics) width = std::max(width, topic.name.size());
  for (const HelpTopic& topic : topics)
    std::cout << padded_right(topic.name, width + 2) << topic.title << '\n';
  std::cout << "\ntrainer help TOPIC shows a page, trainer help exit-5 an exit code, trainer help CODE the "
               "code of an\nerror, trainer help COMMAND the options of a command. trainer --help lists the "
               "commands.\n";
}

void show_topic(const CLI::App& app, const std::string& topic) {
  const auto commands = listed_commands(app);
  const auto command =
      std::ranges::find(commands, topic, [](const CLI::App* known) { return known->get_name(); });
  if (topic.starts_with("exit-")) {
    if (const auto page = exit_code_page(topic.substr(5))) {
      std::cout << *page;
      return;
    }
  }
  if (const auto page = error_page(topic)) {
    std::cout << *page;
    return;
  }
  if (const auto page = help_page(topic)) {
    std::cout << *page;
    if (command != commands.end()) std::cout << "\nOptions: trainer " << topic << " --help\n";
    return;
  }
  if (command != commands.end()) {
    std::cout << (*command)->help("trainer");
    return;
  }
  std::vector<std::string> names;
  for (const HelpTopic& known : help_topics()) names.push_back(known.name);
  for (const CLI::App* known : commands) names.push_back(known->get_name());
  for (const ErrorCode known : error_codes()) names.push_back(name_of(known));
  const std::string near = closest(topic, names);
  throw ConfigError(concat("help: there is no page '", topic, "'; ",
                           near.empty() ? "trainer help lists them" : "did you mean " + near + "?"));
}

void write_man_pages(const CLI::App& app, const std::filesystem::path& folder) {
  make_directories(folder);
  write_atomically(folder / "trainer.1", man_page(app, app));
  for (const CLI::App* command : listed_commands(app))
    write_atomically(folder / concat("trainer-", command->get_name(), ".1"), man_page(app, *command));
}

}  // namespace

void add_help(CLI::App& command) {
  auto topic = std::make_shared<std::string>();
  auto folder = std::make_shared<std::string>();
  command.add_option("topic", *topic, "A page, the code of an error, exit-5 for an exit code, or a command")
      ->type_name("TOPIC");
  command.add_option("--man", *folder, "Write manual pages of all commands to this folder")->type_name("DIR");
  command.callback([&command, topic, folder] {
    const CLI::App& app = *command.get_parent();
    if (!folder->empty()) {
      write_man_pages(app, *folder);
    } else if (topic->empty()) {
      list_topics();
    } else {
      show_topic(app, *topic);
    }
  });
}

}  // namespace trainer::cli
