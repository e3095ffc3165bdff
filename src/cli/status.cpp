// trainer status OUT
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/config/load.h"

#include "base/foreign_errors.h"
#include "base/text.h"
#include "cli/commands.h"
#include "config/go_on.h"
#include "formats/run_status.h"

namespace trainer::cli {
namespace {

// The status of a run as text for people.

// Seconds since 1970.
double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// "1,234/4,200 (29 %)"
std::string step_text(const RunStatus& status) {
  if (status.total_steps <= 0) return grouped(status.step);
  return concat(grouped(status.step), "/", grouped(status.total_steps), " (",
                100 * status.step / status.total_steps, " %)");
}

// "3 min 20 s ago"
// The clocks of two machines differ.
std::string ago(double moment, double now) { return duration_string(std::max(0.0, now - moment)) + " ago"; }

// "2026-01-31 12:00:00", local time
std::string time_text(double moment) {
  const auto seconds = static_cast<std::time_t>(moment);
  std::tm local{};
  ::localtime_r(&seconds, &local);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &local);
  return text.data();
}

std::string number_text(const char* format, double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

using Lines = std::vector<std::pair<std::string, std::string>>;

std::string explained(const RunStatus& status) {
  const std::string name = name_of(status.state);
  switch (status.state) {
    case RunPhase::starting:
      return name + ": it loads model and data";
    case RunPhase::stopped:
      return name + ": its state is saved";
    case RunPhase::killed:
      return name + ": its process is gone and said nothing";
    case RunPhase::silent:
      return name + ": it ran on another machine and has said nothing since; look there";
    case RunPhase::unknown:
      return name + ": it is not finished, and its files do not say whether it runs";
    case RunPhase::running:
    case RunPhase::finished:
    case RunPhase::failed:
      break;
  }
  return name;
}

std::string memory_text(const RunStatus& status) {
  const auto bytes = [](double number) { return bytes_string(std::llround(number)); };
  std::string text = "peak " + bytes(*status.memory_peak);
  if (status.memory_limit && *status.memory_limit > 0)
    text += concat(" of ", bytes(*status.memory_limit), " (",
                   std::llround(100 * *status.memory_peak / *status.memory_limit), " %)");
  return text;
}

// What to type next, and only if it does what it says.
std::pair<std::string, std::string> next_step(const RunStatus& status,
                                              const std::filesystem::path& directory) {
  const bool finished = status.state == RunPhase::finished;
  const bool ended = finished || status.state == RunPhase::stopped || status.state == RunPhase::killed ||
                     status.state == RunPhase::failed;
  const std::filesystem::path file = directory / "config.yaml";
  std::error_code ignored;
  if (!ended || !std::filesystem::exists(file, ignored)) return {};
  try {
    const Config config = load_config(file, {});
    const auto from = step_to_go_on_from(directory);
    if (finished && !from) return {};
    if (finished) return {"to train longer", longer_run_command(config, directory)};
    const std::string command = go_on_command(config, directory);
    if (from) return {"to go on", concat(command, "  (from step ", *from, ")")};
    return {"to begin anew", concat(command, "  (there is no checkpoint)")};
  } catch (const Error&) {  // of another version: it says what is wrong when it is started
    return {};
  }
}

Lines lines_of(const RunStatus& status, const std::filesystem::path& directory, double now) {
  Lines lines{{"state", explained(status)}};
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) lines.emplace_back(name, value);
  };
  add("reason", status.message);
  if (status.exit_code && *status.exit_code != 0) add("exit code", std::to_string(*status.exit_code));
  add("model", status.model);
  if (status.step > 0 || status.total_steps > 0) add("step", step_text(status));
  if (status.epoch) add("epoch", number_text("%.2f", *status.epoch));
  if (status.loss) add("loss", number_text("%.4f", *status.loss));
  if (status.learning_rate) add("learning rate", number_text("%.2e", *status.learning_rate));
  if (status.tokens_per_second) add("speed", grouped(std::llround(*status.tokens_per_second)) + " tok/s");
  if (status.memory_peak) add("memory", memory_text(status));
  if (status.eval_loss)
    add("evaluation",
        concat(number_text("%.4f", *status.eval_loss), " at step ", status.evaluation_step.value_or(0)));
  if (status.saved_step) add("saved", concat("step ", *status.saved_step));
  add("now", status.work);
  if (status.seconds_left)
    add("left", *status.seconds_left < 0.5 ? "finishing" : duration_string(*status.seconds_left));
  if (status.started) add("started", concat(time_text(*status.started), ", ", ago(*status.started, now)));
  if (status.updated) add("last update", concat(time_text(*status.updated), ", ", ago(*status.updated, now)));
  const auto [name, command] = next_step(status, directory);
  add(name.c_str(), command);
  if (status.process.pid > 0) add("process", concat(status.process.pid, " on ", status.process.host));
  return lines;
}

// trainer runs DIR
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
  return {printable(name),
          name_of(status.state),
          step_text(status),
          status.loss ? number_text("%.4f", *status.loss) : "-",
          status.eval_loss ? number_text("%.4f", *status.eval_loss) : "-",
          status.seconds_left ? duration_string(*status.seconds_left) : "-",
          status.updated ? ago(*status.updated, now) : "-"};
}

void print_table(const std::vector<FoundRun>& runs, const fs::path& directory, double now) {
  std::vector<TableRow> rows{{"run", "state", "step", "loss", "eval", "left", "last update"}};
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

void add_status(CLI::App& command) {
  struct Options {
    std::string directory;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  command.add_option("directory", options->directory, "Output directory of a run")->type_name("OUT");
  command.add_flag("--json", options->json, "Print one JSON object");
  command.callback([options] {
    require_option(options->directory, "status", "OUT (the output directory of a run)");
    const double moment = now();
    const RunStatus status = read_run_status(options->directory, moment);
    if (options->json) {
      const auto replace = nlohmann::ordered_json::error_handler_t::replace;
      std::cout << to_json(status).dump(-1, ' ', false, replace) << '\n';
      return;
    }
    for (const auto& [name, value] : lines_of(status, options->directory, moment))
      std::cout << padded_right(name, 17) << printable(value) << '\n';
  });
}

void add_runs(CLI::App& command) {
  struct Options {
    std::string directory = ".";
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  command.add_option("directory", options->directory, "Where to look (default: here)")->type_name("DIR");
  command.add_flag("--json", options->json, "Print an array of JSON objects");
  command.callback([options] {
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
