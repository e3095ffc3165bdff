#include "trainer/training/evaluate.h"

#include <algorithm>
#include <numeric>

#include <ATen/ATen.h>

#include "trainer/memory/device.h"

namespace trainer {

CutLimits cut_limits(const Config& config, bool encoder_decoder, int64_t batch_size) {
  const DataConfig& data = config.data;
  return {config.training.micro_batching, batch_size,
          encoder_decoder ? data.max_source_length : data.max_length, data.max_target_length};
}

EvaluationResult evaluate(const Model& model, const Dataset& dataset, const Config& config,
                          at::Device device) {
  at::NoGradGuard no_grad;
  ForwardContext context;
  context.count_correct = true;
  EvaluationResult result;
  const int64_t batch_size = config.eval_batch_size(),
                group = batch_size * 16;  // ordered by length within a group
  const bool encoder_decoder = model.encoder_decoder();
  const CutLimits limits = cut_limits(config, encoder_decoder, batch_size);
  at::Tensor loss_sum = at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(device));
  at::Tensor correct = at::zeros({}, at::TensorOptions().dtype(at::kLong).device(device));
  const int64_t every = config.memory.empty_cache_steps;
  int64_t micro_batches = 0;
  for (int64_t first = 0; first < dataset.size(); first += group) {
    std::vector<int64_t> indices(static_cast<size_t>(std::min(group, dataset.size() - first)));
    std::iota(indices.begin(), indices.end(), first);
    const EffectiveBatch batch = load_effective_batch(dataset, indices);
    result.samples += static_cast<int64_t>(batch.samples.size());
    result.supervised_tokens += batch.supervised_tokens;
    for (const std::vector<int64_t>& slots : cut(batch, limits, encoder_decoder)) {
      const MicroBatch micro = collate(batch, slots, model.collate_options(), device);
      if (micro.supervised_labels.numel() == 0) continue;
      const LossSum out = model.loss(micro, context);
      loss_sum += out.loss;
      correct += out.correct;
      if (every > 0 && ++micro_batches % every == 0) empty_cache(device);
    }
  }
  const double supervised = static_cast<double>(std::max<int64_t>(result.supervised_tokens, 1));
  result.loss = loss_sum.item<double>() / supervised;
  result.token_accuracy = static_cast<double>(correct.item<int64_t>()) / supervised;
  return result;
}

}  // namespace trainer
