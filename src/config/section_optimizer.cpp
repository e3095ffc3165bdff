#include "config/declare.h"

namespace trainer::config {

Section optimizer_section() {
  using O = OptimizerConfig;
  return section(
      "optimizer", "How weights are updated.",
      {key(&O::name, "name", OnResume::fixes_run, "The optimizer (docs/optimizers.md).")
           .one_of({"adamw", "adamw_8bit", "adafactor"}),
       key(&O::learning_rate, "learning_rate", OnResume::is_logged, "Peak learning rate of the schedule.")
           .at_least(0)
           .default_where({}, "1.0e-05")
           .default_where({of_family(kT5)}, "1.0e-04")
           .default_where({{.key = "optimizer.name", .values = {"adafactor"}}, of_family(kDecoders, false)},
                          "0.001")
           .default_where({{.key = "lora", .values = {"null"}, .among = false}}, "2.0e-04")
           .default_where({{.key = "objective.name", .values = {"sft", "distill"}, .among = false}},
                          "1.0e-06")
           .default_where({{.key = "objective.name", .values = {"sft", "distill"}, .among = false},
                           {.key = "lora", .values = {"null"}, .among = false}},
                          "5.0e-06")
           .not_with("optimizer.relative_step", "true"),
       key(&O::weight_decay, "weight_decay", OnResume::is_logged,
           "Decoupled weight decay. Not applied to norms and biases.")
           .at_least(0),
       key(&O::adam_beta1, "adam_beta1", OnResume::is_logged, "Decay rate of the running mean of gradients.")
           .at_least(0)
           .below(1)
           .not_with("optimizer.name", "adafactor"),
       key(&O::adam_beta2, "adam_beta2", OnResume::is_logged,
           "Decay rate of the running mean of squared gradients.")
           .at_least(0)
           .below(1)
           .not_with("optimizer.name", "adafactor"),
       key(&O::adam_epsilon, "adam_epsilon", OnResume::is_logged, "Added to the denominator of the update.")
           .at_least(0)
           .not_with("optimizer.name", "adafactor"),
       key(&O::beta1, "beta1", OnResume::fixes_run,
           "Decay rate of the running mean of updates. null: no running mean, which needs no memory.")
           .at_least(0)
           .below(1)
           .only_with("optimizer.name", "adafactor"),
       key(&O::decay_rate, "decay_rate", OnResume::is_logged,
           "Exponent of the running mean of squared gradients. In update t it keeps 1 - t^decay_rate of what "
           "it was.")
           .at_least(-100)
           .at_most(0)
           .only_with("optimizer.name", "adafactor"),
       key(&O::clip_threshold, "clip_threshold", OnResume::is_logged,
           "The update of a tensor is scaled down if its root mean square, before the learning rate, is "
           "larger than this.")
           .above(0)
           .only_with("optimizer.name", "adafactor"),
       key(&O::eps, "eps", OnResume::is_logged,
           "Two small numbers. The first is added to squared gradients; the second is the least size that "
           "scale_parameter assumes of a tensor.")
           .above(0)
           .only_with("optimizer.name", "adafactor"),
       key(&O::scale_parameter, "scale_parameter", OnResume::is_logged,
           "Multiply the learning rate of each tensor by the root mean square of its values.")
           .only_with("optimizer.name", "adafactor"),
       key(&O::relative_step, "relative_step", OnResume::is_logged,
           "Compute the learning rate from the number of updates: 1 / sqrt(updates), at most 0.01. There is "
           "no schedule then.")
           .only_with("optimizer.name", "adafactor"),
       key(&O::warmup_init, "warmup_init", OnResume::is_logged,
           "With relative_step, let the learning rate rise by 0.000001 with each update from 0 on.")
           .only_with("optimizer.name", "adafactor"),
       key(&O::lr_scheduler_type, "lr_scheduler_type", OnResume::is_logged,
           "Learning rate schedule after the warm-up. The same as the schedule of that name in "
           "Transformers.")
           .default_where({of_family(kDecoders)}, "cosine")
           .default_with("optimizer.name", "adafactor", "constant_with_warmup")
           .not_with("optimizer.relative_step", "true"),
       key(&O::warmup_steps, "warmup_steps", OnResume::is_logged,
           "Updates in which the learning rate rises from 0 to its peak. Set either this or warmup_ratio.")
           .at_least(0)
           .at_most(1e10)
           .in("steps")
           .not_with("optimizer.relative_step", "true")
           .idle({.states = {{.key = "optimizer.lr_scheduler_type", .values = {"constant"}}}}),
       key(&O::warmup_ratio, "warmup_ratio", OnResume::is_logged,
           "Length of the warm-up as a share of all updates.")
           .at_least(0)
           .below(1)
           .default_where({}, "0.03")
           .default_where({given("optimizer.warmup_steps")}, "0")
           .default_with("optimizer.lr_scheduler_type", "constant", "0")
           .default_with("optimizer.lr_scheduler_type", "inverse_sqrt", "0")
           .default_with("optimizer.relative_step", "true", "0")
           .not_with("optimizer.relative_step", "true")
           .idle({.states = {{.key = "optimizer.lr_scheduler_type", .values = {"constant"}}}}),
       key(&O::master_weights, "master_weights", OnResume::fixes_run,
           "Keep an fp32 copy of bf16 weights for the updates. Costs 4 more bytes per parameter; without it, "
           "bf16 weights are rounded stochastically. Only for full fine-tuning: LoRA matrices are fp32 "
           "anyway.")
           .idle_without("lora", "null"),
       key(&O::state_dtype, "state_dtype", OnResume::fixes_run,
           "Data type of the optimizer's two moments. auto: bf16 for bf16 weights; fp32 for fp32 weights or "
           "if there is an fp32 copy of the weights. With adamw_8bit it is that of the moments that are not "
           "in "
           "8 bits; auto: fp32. With adafactor it is that of the first moment; the second is fp32.")
           .idle({.states = {{.key = "optimizer.name", .values = {"adafactor"}},
                             {.key = "optimizer.beta1", .values = {"null"}}},
                  .in_help = true}),
       key(&O::grad_dtype, "grad_dtype", OnResume::is_logged,
           "Data type in which gradients are accumulated. auto: that of the weights.")});
}

}  // namespace trainer::config
