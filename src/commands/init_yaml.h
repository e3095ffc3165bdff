// The text of a first configuration: its keys, with comments for those who read their first one.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/config/config.h"
#include "trainer/training/plan.h"

#include "commands/init_rows.h"

namespace trainer {

// What stands in the comments, besides the values.
struct InitNotes {
  std::string title;   // model and card
  std::string memory;  // what is planned, of what
  std::string method;  // why all weights are trained, or LoRA
  bool has_tokenizer = false;
  int64_t blocks = 0;  // of the model
  RowsFound rows = {};
};

// Values come from the configuration, so that they read back as they are.
std::string first_configuration_text(const Config& config, const InitNotes& notes);

}  // namespace trainer
