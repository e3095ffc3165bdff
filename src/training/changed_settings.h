// The difference of two configurations, as settings for the command line.
#pragma once

#include <string>
#include <vector>

#include "trainer/config/config.h"

namespace trainer {

// "[optimizer,weights]"
std::string offload_value(const Offload& offload);

// Returns what makes `from` into `to`, as key=value, for the keys that measures change. Neither configuration
// has auto in them. The effective batch stays as `from` has it.
std::vector<std::string> changed_settings(const Config& from, const Config& to);

}  // namespace trainer
