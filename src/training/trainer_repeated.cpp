// The part of the trainer for passes that repeat.
#include "trainer/training/trainer.h"

#include "device/target_device.h"
#include "memory/gpu_graph.h"
#include "training/placement.h"
#include "training/repeated_passes.h"
#include "training/step_of_answers.h"
#include "training/step_of_vectors.h"

namespace trainer {

// Returns whether passes depend on their micro-batches only, and on what is on the device.
bool Trainer::can_repeat() const {
  return ranks_.alone() && !answers_loss_ && !config_.objective.embeds() && !config_.memory.offload.any() &&
         config_.training.neftune_noise_alpha <= 0 && !placement_->kept_inputs() &&
         !placement_->lends_weights();
}

bool Trainer::records_passes() const { return can_repeat() && records_work(target(), products_of_a_pass()); }

// Returns whether packed rows are padded to few forms, so that passes repeat. Where the launches are a small
// part of a pass, the padding would cost more than they do. The answer is the same for all steps of a run.
bool Trainer::gains_by_few_forms() const {
  return can_repeat() && config_.data.packs() && repeats_work(target(), products_of_a_pass()) &&
         model_.packs_by_starts(device_);
}

// Of a full micro-batch, forward.
double Trainer::products_of_a_pass() const {
  const bool two_stacks = model_.encoder_decoder();  // a token goes through one
  const int64_t length = two_stacks ? (config_.data.max_source_length + config_.max_target_length()) / 2
                                    : config_.data.max_length;
  return static_cast<double>(multiplied_weights_) * static_cast<double>(config_.training.batch_size * length);
}

// The device, or in a memory plan a device like that which it is for.
at::Device Trainer::target() const { return device_.is_meta() ? at::Device(target_of(device_)) : device_; }

LossSum Trainer::repeated_pass(const MicroBatch& micro, const ForwardContext& context,
                               const at::Tensor& seed) {
  const RepeatedPasses::Form form{context.recompute_blocks, context.light, context.widen_once};
  return repeated_->run(micro, seed, form,
                        [this, context](const MicroBatch& own, const at::Tensor& own_seed) {
                          const Begun begun = forward(own, context, {}, own_seed);
                          backward(begun.value, begun.gradient, context.recompute_blocks, /*last=*/false);
                          return begun.out;
                        });
}

}  // namespace trainer
