// The data of a run, as its report tells.
#pragma once

#include "trainer/config/config.h"
#include "trainer/data/dataset.h"
#include "trainer/data/report.h"
#include "trainer/text/tokenizer.h"

namespace trainer {

// What was counted when the data were opened, what repeats, the steps of an epoch and what they pad, and the
// first samples. eval: nullptr: none.
RunDataReport describe_data(const Config& config, const Dataset& train, const Dataset* eval,
                            const Tokenizer& tokenizer);

}  // namespace trainer
