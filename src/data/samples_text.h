// A fingerprint of the samples of a data set.
#pragma once

#include <string>

#include "trainer/data/dataset.h"

namespace trainer {

// Returns the number of samples and a checksum. The checksum covers the rows and lengths of all samples, and
// the tokens and labels of some that are spread over the data set: "400 samples, xxh3 0123456789abcdef".
std::string samples_text(const Dataset& data);

}  // namespace trainer
