// What a result depends on besides configuration and files: libraries, variables of the environment, the
// processor.
#pragma once

#include <map>
#include <string>

#include <c10/core/Device.h>

namespace trainer {

// An entry with this name changes the last bits only.
inline constexpr const char* kProcessor = "processor";

// Returns what this process computes with, by name: "library MKL", "environment MKL_CBWR" (of every variable
// that changes results; "none": it is not set), on the CPU kProcessor.
std::map<std::string, std::string> computes_with(c10::Device device);

}  // namespace trainer
