// trainer import-config FILE
#include "config/import_config.h"

#include <filesystem>
#include <iostream>
#include <memory>
#include <string>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/foreign_errors.h"
#include "cli/commands.h"
#include "cli/new_file.h"

namespace trainer::cli {
namespace {

void print_notes(const char* title, const std::vector<std::string>& notes) {
  if (notes.empty()) return;
  std::cerr << title << '\n';
  for (const std::string& note : notes) std::cerr << "  " << printable(note) << '\n';
}

}  // namespace

void add_import_config(CLI::App& command) {
  struct Options {
    std::string file, out;
  };
  auto options = std::make_shared<Options>();
  command.add_option("file", options->file, "The configuration (YAML or JSON)")->type_name("FILE");
  command.add_option("-o,--out", options->out, "File to write, which must not exist (default: stdout)")
      ->type_name("FILE");
  command.footer(
      "What means something else here, and what is left out, stands at the top of the result, and on "
      "stderr. What the other program does without a key is written out where this one would do otherwise.");
  command.callback([options] {
    require_option(options->file, "import-config", "FILE (a configuration of another trainer)");
    if (!options->out.empty()) require_new_file(options->out, "import-config");
    const ImportedConfig imported = import_config(options->file);
    std::cerr << printable(options->file) << ": a configuration of " << imported.from << '\n';
    print_notes("What means something else here:", imported.changes);
    print_notes("Their defaults, where ours are others:", imported.defaults);
    print_notes("What is left out:", imported.left_out);
    if (options->out.empty()) {
      std::cout << imported.yaml;
    } else {
      write_new_file(options->out, imported.yaml, "import-config");
      std::cerr << "written: " << options->out << "; next: trainer plan --config " << options->out << '\n';
    }
  });
}

}  // namespace trainer::cli
