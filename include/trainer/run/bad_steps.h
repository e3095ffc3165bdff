// Steps whose loss or gradient norm is no finite number: they are told, written down and counted
// (docs/reliability.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trainer/observe/jsonl_sink.h"
#include "trainer/training/trainer.h"

namespace trainer {

class BadSteps {
 public:
  // `file`: OUT/bad_steps.jsonl; the first row makes it. `max_bad_steps`: of the configuration. A run that
  // goes on after `step`, with so many bad steps in a row before it, makes the later ones again: their rows
  // are removed. Throws FormatError when they cannot be.
  BadSteps(std::filesystem::path file, int64_t max_bad_steps, int64_t step = 0, int64_t in_a_row = 0);

  // Takes the result of a step. One that was not applied is logged, with the samples that are to blame, and
  // gets a row with all of its samples. `origins`: their file:line, in the order of the batch.
  void add(int64_t step, const StepResult& result, const std::vector<std::string>& origins);

  int64_t in_a_row() const { return in_a_row_; }
  // Why the run has to end, where max_bad_steps is reached; else "".
  std::string reason_to_end() const;

 private:
  void remove_rows_after(int64_t step) const;

  std::filesystem::path file_;
  int64_t max_bad_steps_, in_a_row_;
  std::optional<JsonlSink> rows_;
};

}  // namespace trainer
