// The data of a run, as its report tells.
#pragma once

#include <filesystem>

#include "trainer/config/config.h"
#include "trainer/data/batching.h"
#include "trainer/data/dataset.h"
#include "trainer/data/report.h"
#include "trainer/text/tokenizer.h"

namespace trainer {

// What was counted when the data were opened, what repeats, the steps of an epoch and what they pad, and the
// first samples in `order`, which is of `train`. eval: nullptr: none.
RunDataReport describe_data(const Config& config, const Dataset& train, const Dataset* eval,
                            const SampleOrder& order, const Tokenizer& tokenizer);

// Writes DIRECTORY/data_report.json. A disk without room for it must not keep a run from going on: then it
// warns.
void keep_data_report(const RunDataReport& report, const std::filesystem::path& directory);

}  // namespace trainer
