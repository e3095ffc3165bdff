#include "run/replay_cuts.h"

#include <fstream>
#include <string>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

namespace trainer {

std::map<int64_t, StepCuts> read_step_cuts(const std::filesystem::path& metrics) {
  std::error_code ignored;
  std::ifstream in;
  if (std::filesystem::is_regular_file(metrics, ignored)) in.open(metrics);
  if (!in.is_open())
    throw DataError(concat("training.replay_cuts: ", metrics.string(), " cannot be read as a file"));
  std::map<int64_t, StepCuts> steps;
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    number++;
    try {
      const nlohmann::json row = nlohmann::json::parse(line);
      if (row.at("kind") != "train") continue;
      steps[row.at("step").get<int64_t>()] = {
          row.at("cuts").get<std::vector<int64_t>>(),
          row.at("recomputed_blocks").get<int64_t>(),
          {row.value("packed_budget", int64_t{0}), row.value("packed_target_budget", int64_t{0})}};
    } catch (const nlohmann::json::exception& error) {
      throw DataError(concat("training.replay_cuts: ", metrics.string(), ":", number,
                             ": is not a row of a metrics.jsonl with the cuts of a step: ", error.what()));
    }
  }
  if (steps.empty())
    throw DataError(concat("training.replay_cuts: ", metrics.string(), " holds no step of training"));
  return steps;
}

}  // namespace trainer
