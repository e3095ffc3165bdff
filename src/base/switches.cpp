#include "base/switches.h"

#include <cstdlib>
#include <string>

namespace trainer {

std::span<const SwitchValues> all_switches() {
  static const std::vector<SwitchValues> all{{"TRAINER_GRAPHS", {"on", "off", "launched"}},
                                             {"TRAINER_CUDNN_ATTENTION", {"off", "forward"}},
                                             {"TRAINER_FP8_PRODUCTS", {"on", "off"}},
                                             {"TRAINER_RECURRENT_KERNELS", {"on", "off"}},
                                             {"TRAINER_BF16_SUMS", {"on", "off"}}};
  return all;
}

bool switch_is(Switch which, std::string_view value) {
  static const std::vector<std::string> found = [] {
    std::vector<std::string> values;
    for (const SwitchValues& one : all_switches()) {
      const char* const given = std::getenv(one.name);
      values.emplace_back(given == nullptr ? "" : given);
    }
    return values;
  }();
  return found[static_cast<size_t>(which)] == value;
}

}  // namespace trainer
