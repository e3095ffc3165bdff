#include "training/memory_table.h"

#include <iomanip>
#include <sstream>
#include <utility>
#include <vector>

#include "trainer/base/strings.h"
#include "trainer/memory/summary.h"

namespace trainer {
namespace {

using Rows = std::vector<std::pair<std::string, std::string>>;

std::string table(const Rows& rows) {
  std::ostringstream out;
  for (const auto& [name, value] : rows) out << "  " << std::left << std::setw(18) << name << value << '\n';
  return out.str();
}

Rows rows_of(at::Device device) {
  const MemorySummary memory = memory_summary(device);
  return {{"allocated now", bytes_string(memory.allocated)},
          {"peak", bytes_string(memory.peak)},
          {"limit", memory.limit > 0 ? bytes_string(memory.limit) : "none (memory.limit)"}};
}

// Other measures have figures, in the memory plan (training/measures.h).
std::string advice(const Config& config, const Model& model) {
  std::vector<std::string> lines;
  if (!config.memory.limit.empty()) lines.push_back("a larger memory.limit, if the device has it");
  if (config.recovery.min_batch_size > 1) lines.push_back("recovery.min_batch_size: 1");
  if (model.encoder_decoder()) {
    lines.push_back(concat("shorter samples: data.max_source_length below ", config.data.max_source_length,
                           ", data.max_target_length below ", config.data.max_target_length));
  } else {
    lines.push_back(concat("shorter samples: data.max_length below ", config.data.max_length));
  }
  return "What helps, cheapest first:\n  " + join(lines, "\n  ");
}

}  // namespace

std::string memory_table(const Config& config, Model& model, int64_t optimizer_state, at::Device device) {
  int64_t weights = 0, gradients = 0;
  model.for_each_parameter([&](const std::string&, Parameter& parameter) {
    if (parameter.value.offloaded()) return;
    weights += parameter.value.nbytes();
    if (!parameter.trained()) return;
    const bool wider = config.optimizer.grad_dtype == StateDtype::fp32;
    gradients +=
        parameter.numel() * static_cast<int64_t>(wider ? 4 : c10::elementSize(parameter.value.scalar_type()));
  });
  Rows rows{{"weights", bytes_string(weights)},
            {"gradients", bytes_string(gradients)},
            {"optimizer state", bytes_string(optimizer_state)}};
  for (auto& row : rows_of(device)) rows.push_back(std::move(row));
  return table(rows) + advice(config, model);
}

std::string memory_table(at::Device device, const std::string& advice) {
  return table(rows_of(device)) + advice;
}

}  // namespace trainer
