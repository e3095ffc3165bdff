#include "training/evaluation_splits.h"

#include <algorithm>
#include <numeric>

namespace trainer {
namespace {

constexpr const char* kAdvice =
    "What helps: a larger memory.limit, if the device has it; shorter samples (data.max_source_length and "
    "data.max_target_length, for decoders data.max_length).";

}  // namespace

StepLoader::NextIndices groups_of(int64_t begin, int64_t end, int64_t size) {
  return [end, size, first = begin]() mutable {
    std::vector<int64_t> indices(static_cast<size_t>(std::min(size, end - first)));
    std::iota(indices.begin(), indices.end(), first);
    first += static_cast<int64_t>(indices.size());
    return indices;
  };
}

OomRecovery recovery_of_evaluation(const Config& config, at::Device device,
                                   const RecoveryListener& listener) {
  return OomRecovery({config.recovery, device, "evaluation", /*clean_up=*/[] {},
                      /*explain=*/[device] { return memory_table(device, kAdvice); }, listener});
}

EvaluationSplits::EvaluationSplits(const Model& model, const Config& config, at::Device device,
                                   BatchBudget& budget, const RecoveryListener& listener)
    : config_(config), device_(device), budget_(budget), listener_(listener) {
  split_.encoder_decoder = model.encoder_decoder();
  split_.limits = cut_limits(config, split_.encoder_decoder, config.eval_batch_size());
}

}  // namespace trainer
