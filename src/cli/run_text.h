// How the status of a run is shown to people.
#pragma once

#include <string>

#include "formats/run_status.h"

namespace trainer::cli {

// Seconds since 1970.
double now();

// "1,234/4,200 (29 %)"
std::string step_text(const RunStatus& status);
// "3 min 20 s ago"
std::string ago(double moment, double now);
// "2026-01-31 12:00:00", local time
std::string time_text(double moment);
std::string number_text(const char* format, double value);

}  // namespace trainer::cli
