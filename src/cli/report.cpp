// trainer report OUT... [-o FILE]
#include "report/report.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "cli/commands.h"

namespace trainer::cli {

void add_report(CLI::App& command) {
  struct Options {
    std::vector<std::string> runs;
    std::string file;
  };
  auto options = std::make_shared<Options>();
  command.add_option("runs", options->runs, "Output directories of runs, also of one that is still running")
      ->type_name("OUT");
  command
      .add_option("-o,--output", options->file,
                  "File to write; - is stdout. Default: OUT/report.html, for several runs comparison.html")
      ->type_name("FILE");
  command.footer(
      "Needs no network, to write or to read: everything is in the page. A run writes the page itself, too\n"
      "(observe.report_minutes). docs/observing.md says more.");
  command.callback([options] {
    if (options->runs.empty())
      throw ConfigError("report: OUT is required, the output_dir of a run; see trainer report --help");
    const std::vector<std::filesystem::path> runs(options->runs.begin(), options->runs.end());
    if (options->file == "-") {
      std::cout << report_page(runs);
      return;
    }
    std::filesystem::path file = options->file;
    if (file.empty()) file = runs.size() == 1 ? runs.front() / "report.html" : "comparison.html";
    const int64_t bytes = write_report(runs, file);
    std::cout << file.string() << "  " << bytes_string(bytes) << "\n";
  });
}

}  // namespace trainer::cli
