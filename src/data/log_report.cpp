#include "data/log_report.h"

#include "trainer/base/log.h"

namespace trainer {

void log_report(const std::string& start, const std::vector<std::string>& lines) {
  for (const std::string& line : lines) {
    const bool warns = line.find("warning: ") != std::string::npos;
    (warns ? log::warning : log::info)(start + line);
  }
}

}  // namespace trainer
