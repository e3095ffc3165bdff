#include "training/teacher_pass.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/data/step_loader.h"

#include "ops/linear_cross_entropy.h"
#include "training/evaluation_splits.h"

namespace trainer {
namespace {

// The likeliest tokens of each row of states, and all others as the token -1, on the host.
TeacherTokens likeliest(const Model& model, const at::Tensor& states, int64_t top, int64_t vocab) {
  TeacherTokens found{.top = top + 1};
  const at::Tensor weight = model.head().weight(states.scalar_type());
  const int64_t rows = states.size(0), step = rows_per_chunk(rows, rows_of_small_chunks(weight.size(0)));
  for (int64_t row = 0; row < rows; row += step) {
    at::Tensor logits = model.head().logits(states.narrow(0, row, std::min(step, rows - row)), weight);
    const at::Tensor log_z = logits.logsumexp(1, /*keepdim=*/true);
    const auto [values, ids] = logits.narrow(1, 0, vocab).topk(top, 1);
    logits.scatter_(1, ids, -std::numeric_limits<double>::infinity());
    const at::Tensor rest = logits.logsumexp(1, /*keepdim=*/true);
    const at::Tensor log_probs = (at::cat({values, rest}, 1) - log_z).cpu().contiguous(),
                     tokens = at::cat({ids, at::full_like(log_z, -1, ids.options())}, 1).to(at::kInt).cpu();
    found.log_probs.insert(found.log_probs.end(), log_probs.const_data_ptr<float>(),
                           log_probs.const_data_ptr<float>() + log_probs.numel());
    found.ids.insert(found.ids.end(), tokens.const_data_ptr<int32_t>(),
                     tokens.const_data_ptr<int32_t>() + tokens.numel());
  }
  return found;
}

// Gives each of the slots its part, in the order in which collate() lays them out.
void divide(const TeacherTokens& all, const EffectiveBatch& batch, const std::vector<int64_t>& slots,
            bool encoder_decoder, std::vector<TeacherTokens>& by_slot) {
  ptrdiff_t at = 0;
  for (const int64_t slot : slots) {
    const Sample& sample = batch.samples[static_cast<size_t>(slot)];
    const ptrdiff_t end = at + all.top * supervised_tokens(sample, encoder_decoder);
    by_slot[static_cast<size_t>(slot)] = {
        .top = all.top,
        .ids = {all.ids.begin() + at, all.ids.begin() + end},
        .log_probs = {all.log_probs.begin() + at, all.log_probs.begin() + end}};
    at = end;
  }
}

// The teacher's embedding has no row for a token that was added to the model's vocabulary.
void refuse_unknown_tokens(const Sample& sample, int64_t row, const TeacherPass& pass) {
  for (const std::vector<int32_t>* ids : {&sample.input_ids, &sample.labels}) {
    const auto most = std::ranges::max_element(*ids);
    if (most == ids->end() || *most < pass.known) continue;
    throw DataError(concat(pass.dataset.origin(row), ": has the token ", *most, ", and the teacher knows ",
                           pass.known,
                           " tokens; learn tokens that were added (model.add_tokens) without a teacher, or "
                           "from one that has them"));
  }
}

}  // namespace

LogitsOfRows TeacherPass::rows(int64_t begin, int64_t end) const {
  const at::NoGradGuard no_grad;
  const bool encoder_decoder = model.encoder_decoder();
  const int64_t group = 16 * config.eval_batch_size();  // sorted by length within a group
  LogitsOfRows out{.top = top + 1};
  const RecoveryListener no_listener;
  EvaluationSplits splits(model, config, device, budget, no_listener);
  StepLoader loader(dataset, groups_of(begin, end, group),
                    {config.training.num_workers, config.data.prefetch, {}});
  for (int64_t first = begin; first < end; first += group) {
    const EffectiveBatch batch = loader.next();
    for (int64_t slot = 0; slot < batch.rows(); slot++)
      refuse_unknown_tokens(batch.samples[static_cast<size_t>(slot)], first + slot, *this);
    const auto by_slot = splits.run(batch, [&](const MicroBatchSplit& split, PassProgress& at) {
      std::vector<TeacherTokens> said(batch.samples.size(), TeacherTokens{.top = top + 1});
      for (at.micro_batch = 0; at.micro_batch < split.micro_batches.size(); at.micro_batch++) {
        const std::vector<int64_t>& slots = split.micro_batches[at.micro_batch];
        const MicroBatch micro = collate(batch, slots, collate_options(config, model), device);
        if (micro.supervised_labels.numel() == 0) continue;
        divide(likeliest(model, model.supervised_states(micro, ForwardContext()), top, vocab), batch, slots,
               encoder_decoder, said);
      }
      return said;
    });
    for (size_t slot = 0; slot < batch.samples.size(); slot++)
      out.add(batch.samples[slot], by_slot[slot], encoder_decoder);
  }
  return out;
}

}  // namespace trainer
