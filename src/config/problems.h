// Everything that is wrong with a configuration, collected so that it is reported in one go.
#pragma once

#include <string>
#include <vector>

#include "trainer/base/error.h"

namespace trainer::config {

// A place in a file, or with line 0 the source alone: "override 'r=x'".
struct Place {
  std::string source;
  int line = 0, column = 0;

  std::string text() const {
    return line == 0 ? source : source + ":" + std::to_string(line) + ":" + std::to_string(column);
  }
};

struct Problem {
  Place where;
  std::string key;  // "training.batch_size", or ""
  std::string message;
  ExitCode code = ExitCode::usage;  // data, files: what is wrong is a file that the key names
  ErrorCode family = ErrorCode::config_value;

  std::string text() const {
    const std::string place = where.text();
    return (place.empty() ? "" : place + ": ") + (key.empty() ? "" : key + ": ") + message;
  }
};

using Problems = std::vector<Problem>;

}  // namespace trainer::config
