#include "run/run_parts.h"

#include <algorithm>
#include <optional>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/memory/device_memory.h"
#include "trainer/memory/oom.h"
#include "trainer/models/load_model.h"
#include "trainer/training/evaluate.h"
#include "trainer/training/solve_plan.h"

#include "base/progress.h"
#include "device/rank_device.h"
#include "memory/offload.h"
#include "memory/set_up_device.h"
#include "ops/cpu_products.h"
#include "run/run_model.h"
#include "run/run_plan.h"
#include "run/saved_splits.h"
#include "run/teacher_logits.h"
#include "training/prepare_model.h"

namespace trainer {
namespace {

constexpr int64_t kAnswersWhileTraining = 200;  // if evaluation.max_samples is not set

// The run has one date. With model.dtype auto, a run that resumes keeps the type that it began with.
Config as_it_began(const Config& asked, const Resumption& start) {
  Config config = asked;
  if (!start.template_date.empty()) config.data.template_date = start.template_date;
  const auto saved = start.position.fixed.find("model.dtype");
  if (asked.model.dtype == ModelDtype::automatic && saved != start.position.fixed.end())
    config.model.dtype = saved->second == "fp32" ? ModelDtype::fp32 : ModelDtype::bf16;
  settle_head(config);
  return config;
}

// A run on a GPU may end up on the CPU.
void prepare_offload(const Config& config, at::Device device) {
  const Offload& offload = config.memory.offload;
  const bool may_need_files = device.is_cpu() || config.recovery.cpu_fallback;
  if ((offload.any() || offload.automatic) && may_need_files)
    set_offload_directory(config.offload_directory());
}

// Two ranks on one GPU would wait for each other, or run out of its memory.
std::string device_of_its_own(const Config& config, const RankPlace& place, const Ranks& ranks) {
  std::string device;
  const std::vector<std::string> gpus = run_on_all_ranks(
      ranks,
      [&] {
        device = device_of_rank(config.device, place);
        return ranks.alone() ? std::string() : gpu_behind(device);
      },
      Channel::phases);
  for (auto gpu = gpus.begin(); gpu != gpus.end(); ++gpu) {
    const auto first = std::find(gpus.begin(), gpu, *gpu);
    if (gpu->empty() || first == gpu) continue;
    throw DeviceError(concat("rank ", first - gpus.begin(), " and rank ", gpu - gpus.begin(),
                             " would both train on ", *gpu,
                             ", and each needs a GPU of its own: give each its own CUDA_VISIBLE_DEVICES, or "
                             "show all GPUs to all and set LOCAL_RANK or SLURM_LOCALID"));
  }
  return device;
}

DeviceLease take_device(const Config& config, const RankPlace& place, const Ranks& ranks) {
  set_up_cpu(config.training.num_threads);
  set_cpu_products(config.training.cpu_products);
  DeviceLease lease = acquire_device(device_of_its_own(config, place, ranks), config.gpu);
  set_up_device(lease.device, config.memory.limit, config.training.tf32);
  prepare_offload(config, lease.device);
  return lease;
}

// The memory that every rank has, so that all plan the same. Ranks on the CPU share the machine's.
int64_t least_memory_for_run(at::Device device, const Ranks& ranks) {
  int64_t least = memory_for_run(device, device.is_cpu() ? ranks.on_this_machine() : 1);
  for (const std::string& of_rank : ranks.all_gather(std::to_string(least), Channel::phases))
    least = std::min<int64_t>(least, std::stoll(of_rank));
  return least;
}

RunPlan plan_with_room(const Config& config, const Model& model, const PlanTarget& target, at::Device device,
                       const Ranks& ranks) {
  Progress shown("planning the memory");
  shown.hide_parts();
  Config settled = config;
  settle_packing(settled, model, device.type());
  RunPlan plan = plan_run(settled, target, device, least_memory_for_run(device, ranks));
  check_room(plan, device, ranks.on_this_machine());
  return plan;
}

// Returns what `make` makes. When that is out of memory, throws OutOfMemoryError with what would fit.
template <class Make>
auto made_or_advised(const Config& config, const PlanTarget& target, at::Device device, const Make& make) {
  std::string message;
  try {
    return make();
  } catch (const std::exception& error) {
    if (!is_oom(error)) throw;
    message = oom_message(error);
  }
  const std::string measures = advice_to_fit(config, target, device);
  throw OutOfMemoryError(
      concat(message, "\n", measures.empty() ? kModelDidNotFit : kModelNeedsMore, measures));
}

// With memory.offload: auto, says where weights lie before they are loaded. The data are not known yet, so it
// plans for samples of full length. What else is offloaded is chosen later, if the weights stay.
void settle_weights(Config& config, const PlanTarget& target, at::Device device, const Ranks& ranks) {
  if (!config.memory.offload.automatic) return;
  Progress shown("planning the memory");
  shown.hide_parts();
  const auto choice =
      Planner(config, config.model.path, target).cheapest(least_memory_for_run(device, ranks), false);
  if (!choice || !choice->plan.offload.weights) return;
  config.memory.offload = {.optimizer = true, .weights = true, .activations = true};
  log::info("memory.offload: auto: all is offloaded, because samples of full length do not fit otherwise");
}

Prepared load_model_of_run(Config& config, const Tokenizer& tokenizer, at::Device device,
                           const Ranks& ranks) {
  const PlanTarget target{
      device.type(), choose_dtype(config.model, device), tokenizer.vocab_size(), {}, ranks.count()};
  settle_weights(config, target, device, ranks);
  return made_or_advised(config, target, device, [&] {
    Prepared prepared = prepare_model(config, tokenizer, device, ranks);
    check_vocabulary(tokenizer, *prepared.model, config.model.path);
    return prepared;
  });
}

// Two models are never in memory: the teacher goes first.
Prepared load_after_teacher(RunParts& parts) {
  Config& asked = parts.asked;
  if (asked.objective.distills())
    asked.objective.top_k =
        add_teacher(asked, *parts.tokenizer, parts.train, parts.eval, parts.device, parts.ranks);
  return load_model_of_run(asked, *parts.tokenizer, parts.device, parts.ranks);
}

// It allocates the optimizer's state.
Trainer make_trainer(const Config& config, const PlanTarget& target, Model& model, at::Device device,
                     int64_t total_steps, const Ranks& ranks) {
  const Progress shown("making room for the optimizer");
  return made_or_advised(config, target, device,
                         [&] { return Trainer(config, model, device, total_steps, make_optimizer, ranks); });
}

// Rank 0 goes first: it fills the cache of the index, which the others read.
template <class Make>
auto made_by_first_rank_first(const Ranks& ranks, const Make& make) {
  std::optional<decltype(make())> made;
  const auto at_its_turn = [&](bool turn) {
    run_on_all_ranks(
        ranks,
        [&] {
          if (turn) made.emplace(make());
        },
        Channel::phases);
  };
  at_its_turn(ranks.is_first());
  if (!ranks.alone()) at_its_turn(!ranks.is_first());
  return std::move(*made);
}

// From config.json alone.
bool is_encoder_decoder(const Config& config) {
  return model_on_meta(config.model.path, at::kFloat, /*train_all=*/false, std::nullopt,
                       /*offload_weights=*/false, /*ranks=*/1, score_head_for(config))
      ->encoder_decoder();
}

// The classes that it finds, and what they weigh, are those of the evaluation and the model, too.
Dataset open_train_data(Config& config, const Tokenizer& tokenizer, bool encoder_decoder,
                        const Ranks& ranks) {
  Dataset train = made_by_first_rank_first(
      ranks, [&] { return Dataset::open_train(config, tokenizer, encoder_decoder); });
  if (config.objective.classifies()) config.data.labels = train.labels();
  return train;
}

std::optional<Dataset> open_eval_data(const Config& config, const Tokenizer& tokenizer, bool encoder_decoder,
                                      const Ranks& ranks) {
  if (config.data.eval.empty()) return std::nullopt;
  return made_by_first_rank_first(ranks,
                                  [&] { return Dataset::open_eval(config, tokenizer, encoder_decoder); });
}

std::optional<Predictor> make_predictor(const Config& config, const std::optional<Dataset>& eval,
                                        const Tokenizer& tokenizer, const Model& model) {
  if (!config.evaluation.generate) return std::nullopt;
  return std::optional<Predictor>(std::in_place, *eval, tokenizer, config,
                                  generation_config(config.model.path, tokenizer, model),
                                  kAnswersWhileTraining);
}

RunLength length_of(const Config& config, const SampleOrder& order, const RunPosition& begin) {
  const RunLength length = run_length(config, order.epoch_size(), begin);
  if (begin.step > length.total_steps) {
    log::warning(concat("the run is at step ", begin.step, ", beyond the ", length.total_steps,
                        " that are asked for: no step is taken, and the result is what it has"));
  }
  return length;
}

}  // namespace

RunParts::RunParts(const Config& from_user, OutputDirectory& output_directory, const Resumption& start,
                   const Ranks& all_ranks, const RankPlace& place)
    : output(output_directory),
      ranks(all_ranks),
      asked(as_it_began(from_user, start)),
      lease(take_device(asked, place, ranks)),
      device(lease.device),
      tokenizer(load_run_tokenizer(asked)),
      encoder_decoder(is_encoder_decoder(asked)),
      train(open_train_data(asked, *tokenizer, encoder_decoder, ranks)),
      lengths(sample_lengths(train, device.type())),
      eval(open_eval_data(asked, *tokenizer, encoder_decoder, ranks)),
      prepared(load_after_teacher(*this)),
      plan(plan_with_room(asked, *prepared.model, plan_target(), device, ranks)),
      resolved(plan.config),
      predictor(make_predictor(resolved, eval, *tokenizer, *prepared.model)),
      order(train.sets(), resolved.data.shuffle, resolved.seed),
      length(length_of(resolved, order, start.position)),
      trainer(make_trainer(resolved, plan_target(), *prepared.model, device, length.total_steps, ranks)) {
  prepared.artefacts.taught = what_is_taught(asked, train, *tokenizer, prepared.artefacts);
  if (!ranks.alone() && !resolved.training.replay_cuts.empty())
    throw ConfigError("training.replay_cuts: repeats the steps of one process, and this run has several");
}

PlanTarget RunParts::plan_target() const {
  return {device.type(), prepared.model->dtype(), tokenizer->vocab_size(), lengths, ranks.count()};
}

std::map<std::string, int64_t> RunParts::learned_budgets() {
  if (has_moved) return {};  // a run that resumes begins on the first device again
  return budgets_to_keep(resolved, device, trainer.budgets(), generation_budget());
}

bool RunParts::restore_budgets(const RunPosition& position) {
  return put_back_budgets(position.budgets, resolved, device, trainer.budgets(), generation_budget());
}

}  // namespace trainer
