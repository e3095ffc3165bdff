// The lines of a data report in the log.
#pragma once

#include <string>
#include <vector>

namespace trainer {

// Logs the lines, each after `start`; those that warn ("warning: ..." in the line) as warnings.
void log_report(const std::string& start, const std::vector<std::string>& lines);

}  // namespace trainer
