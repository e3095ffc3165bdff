// What training teaches besides the weights.
#pragma once

#include "trainer/config/config.h"
#include "trainer/data/dataset.h"
#include "trainer/run/artefacts.h"
#include "trainer/text/tokenizer.h"

namespace trainer {

// Compares what the data teach, the token that ends an answer and the chat template, with what the files say
// that `artefacts` will copy. Throws FormatError when generation_config.json is damaged.
Taught what_is_taught(const Config& config, const Dataset& train, const Tokenizer& tokenizer,
                      const Artefacts& artefacts);

}  // namespace trainer
