// What tells the samples of a data set from those of another.
#pragma once

#include <string>

#include "trainer/data/dataset.h"

namespace trainer {

// How many there are, and a checksum of the rows and lengths of all and of the tokens and labels of some that
// are spread over them: "400 samples, xxh3 0123456789abcdef".
std::string samples_text(const Dataset& data);

}  // namespace trainer
