// trainer generate --classify: what a head that scores texts gives them.
#pragma once

#include <ostream>
#include <vector>

#include <c10/core/Device.h>

#include "commands/options.h"
#include "commands/prompts.h"
#include "run/run_model.h"

namespace trainer {

// Writes a line of JSON for each row, or for each of options.prompts: the row with `prediction`, of a
// classifier also with `probabilities`. Throws ConfigError for a model without such a head, and DataError for
// a row without a text.
void classify(const OpenModel& opened, std::vector<PlacedRow> rows, const GenerateOptions& options,
              c10::Device device, std::ostream& out);

}  // namespace trainer
