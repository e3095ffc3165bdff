// trainer status OUT
#include <cmath>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainer/base/strings.h"

#include "base/wrap.h"
#include "cli/commands.h"
#include "cli/run_text.h"
#include "formats/run_status.h"

namespace trainer::cli {
namespace {

using Lines = std::vector<std::pair<std::string, std::string>>;

std::string explained(const RunStatus& status) {
  const std::string name = name_of(status.state);
  switch (status.state) {
    case RunPhase::starting:
      return name + ": it loads model and data";
    case RunPhase::stopped:
      return name + ": its state is saved, the same command resumes";
    case RunPhase::killed:
      return name +
             ": its process is gone and said nothing; the same command resumes from the last checkpoint";
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

Lines lines_of(const RunStatus& status, double now) {
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
  if (status.seconds_left) add("left", duration_string(*status.seconds_left));
  if (status.started) add("started", concat(time_text(*status.started), ", ", ago(*status.started, now)));
  if (status.updated) add("last word", concat(time_text(*status.updated), ", ", ago(*status.updated, now)));
  if (status.process.pid > 0) add("process", concat(status.process.pid, " on ", status.process.host));
  return lines;
}

}  // namespace

void add_status_command(CLI::App& app) {
  struct Options {
    std::string directory;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "status", "Say what a run is doing, from the files in its output directory; also on another machine");
  command->add_option("directory", options->directory, "Output directory of a run")->type_name("OUT");
  command->add_flag("--json", options->json, "Print one JSON object");
  command->callback([options] {
    require_option(options->directory, "status", "OUT (the output directory of a run)");
    const double moment = now();
    const RunStatus status = read_run_status(options->directory, moment);
    if (options->json) {
      const auto replace = nlohmann::ordered_json::error_handler_t::replace;
      std::cout << to_json(status).dump(-1, ' ', false, replace) << '\n';
      return;
    }
    for (const auto& [name, value] : lines_of(status, moment))
      std::cout << padded_right(name, 15) << value << '\n';
  });
}

}  // namespace trainer::cli
