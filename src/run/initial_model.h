// Where a run that begins with random weights (model.init: random) finds them.
#pragma once

#include "trainer/config/config.h"

namespace trainer {

// Returns the configuration with model.path set to a directory in the cache folder that has the random
// weights of this config.json, tokenizer and seed; writes it if it is not there. Otherwise returns the
// configuration as it is. Throws FormatError.
Config with_initial_weights(Config config);

}  // namespace trainer
