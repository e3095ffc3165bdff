// trainer runs DIR
#include <algorithm>
#include <array>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/wrap.h"
#include "cli/commands.h"
#include "cli/run_text.h"
#include "formats/run_status.h"

namespace trainer::cli {
namespace {

namespace fs = std::filesystem;

struct FoundRun {
  fs::path path;
  RunStatus status;
};

// The newest last, next to the prompt.
std::vector<FoundRun> read_runs(const fs::path& directory, double now) {
  std::vector<FoundRun> runs;
  for (const fs::path& path : find_runs(directory)) runs.push_back({path, read_run_status(path, now)});
  std::ranges::stable_sort(runs, {}, [](const FoundRun& run) { return run.status.updated.value_or(0); });
  return runs;
}

constexpr size_t kColumns = 7;
using TableRow = std::array<std::string, kColumns>;

TableRow row_of(const FoundRun& run, const fs::path& directory, double now) {
  const RunStatus& status = run.status;
  std::string name = run.path.lexically_relative(directory).string();
  if (name == "." || name.empty()) name = run.path.string();
  return {name,
          name_of(status.state),
          step_text(status),
          status.loss ? number_text("%.4f", *status.loss) : "-",
          status.eval_loss ? number_text("%.4f", *status.eval_loss) : "-",
          status.seconds_left ? duration_string(*status.seconds_left) : "-",
          status.updated ? ago(*status.updated, now) : "-"};
}

void print_table(const std::vector<FoundRun>& runs, const fs::path& directory, double now) {
  std::vector<TableRow> rows{{"run", "state", "step", "loss", "eval", "left", "last word"}};
  for (const FoundRun& run : runs) rows.push_back(row_of(run, directory, now));
  std::array<size_t, kColumns> widths{};
  for (const TableRow& row : rows) {
    for (size_t i = 0; i < kColumns; i++) widths.at(i) = std::max(widths.at(i), count_characters(row.at(i)));
  }
  for (const TableRow& row : rows) {
    std::string line;
    for (size_t i = 0; i < kColumns; i++) line += padded_right(row.at(i), widths.at(i) + 2);
    std::cout << line.substr(0, line.find_last_not_of(' ') + 1) << '\n';
  }
}

void print_json(const std::vector<FoundRun>& runs) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const FoundRun& run : runs) {
    nlohmann::ordered_json fields{{"path", run.path.string()}};
    fields.update(to_json(run.status));
    list.push_back(std::move(fields));
  }
  std::cout << list.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << '\n';
}

}  // namespace

void add_runs_command(CLI::App& app) {
  struct Options {
    std::string directory = ".";
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("runs", "List the runs in and below a directory, the newest last");
  command->add_option("directory", options->directory, "Where to look (default: here)")->type_name("DIR");
  command->add_flag("--json", options->json, "Print an array of JSON objects");
  command->callback([options] {
    const fs::path directory = fs::path(options->directory).lexically_normal();
    if (!fs::is_directory(directory)) throw FormatError(concat(options->directory, ": is not a directory"));
    const double moment = now();
    const std::vector<FoundRun> runs = read_runs(directory, moment);
    if (options->json) {
      print_json(runs);
    } else if (runs.empty()) {
      std::cout << "no runs in or below " << options->directory << '\n';
    } else {
      print_table(runs, directory, moment);
    }
  });
}

}  // namespace trainer::cli
