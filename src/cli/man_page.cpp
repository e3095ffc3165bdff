#include "cli/man_page.h"

#include <algorithm>
#include <cctype>
#include <sstream>

#include "trainer/base/strings.h"
#include "trainer/base/version.h"

namespace trainer::cli {
namespace {

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

}  // namespace

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
    for (const CLI::App* known :
         app.get_subcommands([](const CLI::App* c) { return !c->get_group().empty(); })) {
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

}  // namespace trainer::cli
