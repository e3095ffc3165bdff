// trainer help [WORD]
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
#include <string_view>
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
#include "cli/commands.h"
#include "cli/explain.h"
#include "cli/pages.h"
#include "cli/search_help.h"
#include "config/reference.h"
#include "config/schema.h"

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
  out << ".SH EXIT STATUS\n0 if all went well. `trainer help errors` lists the other codes.\n"
      << ".SH SEE ALSO\n`trainer help` lists pages on data, memory, checkpoints and more.\n";
  return out.str();
}

// Everything that can be shown, to be searched.

std::string title_of_page(const std::string& page) {
  const std::vector<PageSection> sections = sections_of(page);
  return sections.empty() ? "" : sections[0].heading;
}

// Tables of what is generated answer no question.
bool is_searched(const PageSection& section) {
  return section.page != "config" && section.page != "errors" && section.page != "glossary" &&
         !(section.page == "coming-from" && section.anchor == "the-names-of-other-programs");
}

void add_pages(std::vector<HelpEntry>& entries) {
  constexpr double kQuestion = 1.4, kPage = 1.1;
  for (const std::string& page : page_names()) {
    for (const PageSection& section : sections_of(page)) {
      if (!is_searched(section)) continue;
      if (section.page == "faq" && section.anchor.empty()) continue;
      entries.push_back({section.name(), "trainer help " + section.name(), section.heading, section.text,
                         page == "faq"            ? kQuestion
                         : section.anchor.empty() ? kPage
                                                  : 1});
    }
  }
}

void add_errors(std::vector<HelpEntry>& entries) {
  constexpr double kError = 0.65;
  for (const PageSection& section : sections_of("errors")) {
    if (section.anchor.empty()) continue;
    std::istringstream lines(section.text);
    std::string heading, blank, meaning;
    std::getline(std::getline(std::getline(lines, heading), blank), meaning);
    entries.push_back({section.heading, "trainer help " + section.heading, meaning, section.text, kError});
  }
}

void add_keys(std::vector<HelpEntry>& entries) {
  constexpr double kKey = 0.8;
  for (const config::Section& section : config::schema()) {
    if (!section.name.empty())
      entries.push_back({section.name, "trainer explain " + section.name,
                         config::first_sentence(section.help), section.help, kKey});
    for (const config::Key& key : section.keys) {
      entries.push_back({key.full_name(), "trainer explain " + key.full_name(),
                         config::first_sentence(key.help), key.help, kKey});
    }
  }
}

std::vector<HelpEntry> all_entries(const CLI::App& app) {
  std::vector<HelpEntry> entries;
  add_pages(entries);
  add_errors(entries);
  add_keys(entries);
  for (const CLI::App* command : listed_commands(app)) {
    entries.push_back({command->get_name(), concat("trainer ", command->get_name(), " --help"),
                       command->get_description(), ""});
  }
  return entries;
}

std::string short_title(const std::string& title) {
  constexpr size_t kMost = 60;
  const std::string text = title.ends_with('.') ? title.substr(0, title.size() - 1) : title;
  const std::vector<std::string> lines = wrapped(text, kMost);
  return lines.empty() ? "" : lines.size() > 1 ? lines[0] + " …" : lines[0];
}

void list_topics() {
  const std::vector<std::string> pages = page_names();
  if (pages.empty()) throw ConfigError("the pages are not there: install the program again", ExitCode::files);
  size_t width = 0;
  for (const std::string& page : pages) width = std::max(width, page.size());
  for (const std::string& page : pages)
    std::cout << padded_right(page, width + 2) << title_of_page(page) << '\n';
  std::cout
      << "\ntrainer help WORD shows a page or what answers the word (nan, oom, lora.r), trainer explain "
         "NAME a key,\nan error or an exit code, trainer help COMMAND the options of a command. trainer "
         "--help lists the commands.\n";
}

const CLI::App* command_called(const CLI::App& app, const std::string& name) {
  for (const CLI::App* command : listed_commands(app)) {
    if (command->get_name() == name) return command;
  }
  return nullptr;
}

// "memory#a-limit": that part of the page.
std::optional<std::string> part_of_page(const std::string& name) {
  const size_t mark = name.find('#');
  if (mark == std::string::npos) return std::nullopt;
  for (const PageSection& section : sections_of(name.substr(0, mark))) {
    if (section.anchor == name.substr(mark + 1)) return for_terminal(section.text);
  }
  return std::nullopt;
}

// Returns what is called exactly so; nothing if it is no page, error, exit code, command or key with its
// section.
std::optional<std::string> exact_answer(const CLI::App& app, const std::string& name) {
  for (const char* before : {"exit-", "exit code ", "exit status ", "exit "}) {
    if (!name.starts_with(before)) continue;
    if (auto page = exit_code_page(name.substr(std::string_view(before).size()))) return page;
  }
  if (auto page = error_page(name)) return page;
  const CLI::App* command = command_called(app, name);
  if (const auto page = page_text(name)) {
    return for_terminal(*page) + (command != nullptr ? concat("\nOptions: trainer ", name, " --help\n") : "");
  }
  if (command != nullptr) return command->help("trainer");
  if (name.find('.') != std::string::npos && key_called(name) != nullptr) return explanation(name);
  return part_of_page(name);
}

std::string text_of(const CLI::App& app, const HelpEntry& entry) {
  if (entry.command.starts_with("trainer explain ")) return explanation(entry.name).value_or("");
  const std::vector<std::string> pages = page_names();
  if (std::ranges::find(pages, entry.name) == pages.end()) return exact_answer(app, entry.name).value_or("");
  return concat(for_terminal(entry.text), "\nThe whole page: trainer help ", entry.name, "\n");
}

// Where few answer the word: what helps with most.
void fill_up(std::vector<const HelpEntry*>& answers, const std::vector<HelpEntry>& entries, size_t count) {
  for (const char* name : {"starting", "tutorial", "coming-from"}) {
    const auto entry = std::ranges::find(entries, name, &HelpEntry::name);
    if (answers.size() >= count || entry == entries.end()) continue;
    if (std::ranges::find(answers, &*entry) == answers.end()) answers.push_back(&*entry);
  }
}

// The answer, and others by name.
void show(const std::string& answer, const std::vector<const HelpEntry*>& others) {
  std::cout << answer;
  size_t width = 0;
  for (const HelpEntry* other : others) width = std::max(width, other->command.size());
  for (const HelpEntry* other : others) {
    std::cout << (other == others.front() ? "\nSee also:\n" : "")
              << concat("  ", padded_right(other->command, width + 2), short_title(other->title)) << '\n';
  }
}

[[noreturn]] void refuse(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names = page_names();
  for (const CLI::App* known : listed_commands(app)) names.push_back(known->get_name());
  for (const std::string& known : explained_names()) names.push_back(known);
  const std::string near = closest(word, names);
  throw ConfigError(concat("help: nothing is found for '", word, "'; ",
                           near.empty() ? "trainer help lists the pages" : "did you mean " + near + "?"));
}

// What keys are called elsewhere is looked for where no title says the word: fp16, flash attention.
std::optional<std::string> foreign_answer(const std::string& word,
                                          const std::vector<const HelpEntry*>& answers) {
  const bool said = !answers.empty() && is_named_by(*answers[0], word);
  if (said && word.find('_') == std::string::npos) return std::nullopt;
  std::string name = word;
  std::ranges::replace(name, ' ', '_');
  return explanation(name);
}

void show_topic(const CLI::App& app, const std::string& word) {
  constexpr size_t kOthers = 3;
  const std::vector<HelpEntry> entries = all_entries(app);
  std::vector<const HelpEntry*> answers = best_answers(entries, word);
  std::optional<std::string> text = exact_answer(app, word);
  if (!text && word.starts_with("exit-")) refuse(app, word);
  if (!text) text = foreign_answer(word, answers);
  if (text) {
    std::erase_if(answers, [&](const HelpEntry* entry) { return entry->name == word; });
  } else if (!answers.empty()) {
    text = text_of(app, *answers[0]);
    answers.erase(answers.begin());
  } else {
    refuse(app, word);
  }
  if (answers.size() > kOthers) answers.resize(kOthers);
  fill_up(answers, entries, kOthers);
  show(*text, answers);
}

void write_man_pages(const CLI::App& app, const std::filesystem::path& folder) {
  make_directories(folder);
  write_atomically(folder / "trainer.1", man_page(app, app));
  for (const CLI::App* command : listed_commands(app))
    write_atomically(folder / concat("trainer-", command->get_name(), ".1"), man_page(app, *command));
}

}  // namespace

void add_help(CLI::App& command) {
  auto topic = std::make_shared<std::vector<std::string>>();
  auto folder = std::make_shared<std::string>();
  command
      .add_option(
          "topic", *topic,
          "What to look for: a word (nan, oom, lora.r), a page, the code of an error, exit-5 for an exit "
          "code, or a command")
      ->type_name("WORD");
  command.add_option("--man", *folder, "Write manual pages of all commands to this folder")->type_name("DIR");
  command.callback([&command, topic, folder] {
    const CLI::App& app = *command.get_parent();
    if (!folder->empty()) {
      write_man_pages(app, *folder);
    } else if (topic->empty()) {
      list_topics();
    } else {
      show_topic(app, join(*topic, " "));
    }
  });
}

}  // namespace trainer::cli
