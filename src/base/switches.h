// Switches of the program in the environment, to compare ways of computing and to do without one.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace trainer {

enum class Switch { graphs, cudnn_attention, fp8_products, recurrent_kernels, bf16_sums };

// Returns whether the variable has this value; "": it is not set. It is read when it is first asked for.
bool switch_is(Switch which, std::string_view value);

struct SwitchValues {
  const char* name;                      // of the variable
  std::vector<std::string_view> values;  // that it may have
};
// Of each, in their order.
std::span<const SwitchValues> all_switches();

}  // namespace trainer
