// What a message tells.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace trainer {

struct Event {
  std::string kind;                // one of notify.events
  std::string text;                // a few short lines
  std::vector<std::string> lines;  // the last ones of the log, if the run failed
  nlohmann::ordered_json values;   // all of it as JSON, without `text` and `lines`
};

}  // namespace trainer
