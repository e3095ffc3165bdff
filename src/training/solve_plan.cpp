#include "trainer/training/solve_plan.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>

#include "trainer/data/batching.h"
#include "trainer/models/load_model.h"

#include "training/prepare_model.h"
#include "training/rank_traffic.h"

namespace trainer {
namespace {

// Assumed rates, in floating-point operations a second, of a GPU in bf16 and of a processor.
constexpr double kGpuRate = 50e12, kCpuRate = 0.2e12;

// What computing quick operators again adds to the arithmetic of a block (Recompute::light).
constexpr double kLightWork = 0.03;

// What a run may use of the smallest usual GPU, of 8 GB.
constexpr int64_t kFitsAnywhere = 7'600'000'000;

}  // namespace

Planner::Planner(Config config, std::filesystem::path model, PlanTarget target,
                 std::function<void()> after_plan)
    : config_(std::move(config)),
      model_(std::move(model)),
      target_(target),
      after_plan_(std::move(after_plan)) {
  // From here on, the size of micro-batches does not change the effective batch.
  config_.training.effective_batch_size = config_.effective_batch_size();
  config_.training.gradient_accumulation_steps.reset();
}

const PlanChoice& Planner::choice(int64_t batch_size, int64_t recompute_blocks) {
  return choice(batch_size, recompute_blocks, offload_sets().front());
}

const PlanChoice& Planner::choice(int64_t batch_size, int64_t recompute_blocks, const Offload& offload) {
  return choice(batch_size, Recompute::blocks(recompute_blocks), offload);
}

const PlanChoice& Planner::choice(int64_t batch_size, const Recompute& recompute, const Offload& offload) {
  PlanChoice choice;
  choice.plan.offload = offload;
  choice.plan.batch_size = batch_size;
  choice.plan.recompute_blocks = recompute.of(shape().num_blocks);
  choice.plan.light = recompute.is_light();
  const std::tuple key{batch_size, choice.plan.recompute_setting(), offload};
  if (const auto made = made_.find(key); made != made_.end()) return made->second;
  choice.plan = plan_memory(with(choice), model_, target_);
  choice.cost = seconds(choice.plan) / seconds_at_cost_1(choice.plan);
  if (after_plan_) after_plan_();
  return made_.emplace(key, choice).first->second;
}

const PlanChoice& Planner::as_configured() {
  const int64_t batch_size =
      config_.training.batch_size.is_automatic() ? 1 : int64_t{config_.training.batch_size};
  return choice(batch_size, config_.memory.gradient_checkpointing, offload_sets().back());
}

const Planner::ModelShape& Planner::shape() {
  if (shape_) return *shape_;
  const std::unique_ptr<Model> model =
      model_on_meta(model_, target_.dtype, /*train_all=*/false, std::nullopt,
                    /*offload_weights=*/false, /*ranks=*/1, score_head_for(config_));
  int64_t weights = 0;
  model->for_each_parameter(
      [&](const std::string&, const Parameter& parameter) { weights += parameter.numel(); });
  // Half of an encoder-decoder sees the source, half of it the target.
  return shape_.emplace(
      ModelShape{model->num_blocks(), static_cast<double>(weights) / (model->encoder_decoder() ? 2.0 : 1.0)});
}

std::vector<Offload> Planner::offload_sets() const {
  if (!config_.memory.offload.automatic) return {config_.memory.offload};
  return {Offload{}, Offload{.optimizer = true}, Offload{.optimizer = true, .activations = true},
          Offload{.optimizer = true, .weights = true, .activations = true}};
}

std::vector<int64_t> Planner::batch_sizes() const {
  const int64_t all = config_.sequences_of_a_step();
  std::vector<int64_t> sizes;
  for (int64_t size = 1; size < all; size *= 2) sizes.push_back(size);
  sizes.push_back(all);
  return sizes;
}

std::vector<Recompute> Planner::recomputes() {
  const int64_t all = shape().num_blocks;
  std::vector<Recompute> list{false, Recompute::light()};
  for (const int64_t blocks : {all / 4, all / 2, 3 * all / 4, all}) {
    const Recompute more = Recompute::blocks(blocks);
    if (blocks > 0 && more != list.back()) list.push_back(more);
  }
  return list;
}

Recompute Planner::at_step(int64_t step) {
  return step == 0 ? Recompute(false) : step == 1 ? Recompute::light() : Recompute::blocks(step - 1);
}

// In the forward pass two operations for each weight and token, and as many for each gradient of backward;
// frozen weights need none. Where answers are compared, a reference that is not kept takes a forward pass
// more, and kto's other answers take one, or two with such a reference.
double Planner::seconds_at_cost_1(const MemoryPlan& plan) {
  const ObjectiveConfig& objective = config_.objective;
  const bool reference = config_.reference() == Reference::adapter_off;
  const double passes = (config_.lora ? 2.0 : 3.0) + (reference ? 1.0 : 0.0) +
                        (objective.judges() ? reference ? 2.0 : 1.0 : 0.0),
               tokens = static_cast<double>(plan.sample_tokens * share_of_a_rank(config_, target_.ranks));
  const double rate = target_.device == c10::kCPU ? kCpuRate : kGpuRate;
  return 2.0 * shape().weights_of_token * tokens * passes / rate;
}

// The forward pass of a block is a third of its work. In addition to its tokens, a micro-batch has the
// overhead that cut() assumes.
double Planner::seconds(const MemoryPlan& plan) {
  const int64_t share = share_of_a_rank(config_, target_.ranks);
  const auto overhead = [&](int64_t batch_size) {
    return 1.0 + static_cast<double>(CutLimits{}.overhead_tokens) /
                     static_cast<double>(batch_size * plan.sample_tokens);
  };
  const double recomputed = static_cast<double>(plan.recompute_blocks) / static_cast<double>(plan.num_blocks);
  const double again = recomputed / 3.0 + (plan.light ? (1.0 - recomputed) * kLightWork : 0.0);
  const double work =
      (1.0 + again) * overhead(std::min(plan.batch_size, share)) / overhead(config_.sequences_of_a_step());
  return seconds_at_cost_1(plan) * work + plan.offloaded.seconds;
}

// Returns the first step of recompute, up to `last`, that fits. Each recomputed block saves about the same
// memory. So the search interpolates linearly between two known plans, and every third round bisects, in case
// the interpolation makes no progress.
std::optional<PlanChoice> Planner::first_step(int64_t batch_size, int64_t last, const Offload& offload,
                                              int64_t limit) {
  const auto at = [&](int64_t step) { return choice(batch_size, at_step(step), offload); };
  const auto total = [&](int64_t step) { return at(step).plan.total(); };
  int64_t too_few = 1, enough = last;
  if (total(enough) > limit) return std::nullopt;
  for (const int64_t step : {0, 1})
    if (step < enough && total(step) <= limit) return at(step);
  for (int round = 1; enough - too_few > 1; round++) {
    int64_t next = (too_few + enough) / 2;
    if (round % 3 != 0) {
      const double saved = static_cast<double>(total(too_few) - total(enough));
      const double share = static_cast<double>(total(too_few) - limit) / std::max(saved, 1.0);
      next = too_few + std::llround(std::ceil(share * static_cast<double>(enough - too_few)));
      next = std::clamp(next, too_few + 1, enough - 1);
    }
    (total(next) <= limit ? enough : too_few) = next;
  }
  return at(enough);
}

// Returns the last step of recompute with which this batch size can still be cheaper than `best`; below 0 if
// there is none. What it moves is not known before it is planned, and counts as nothing.
int64_t Planner::last_worthwhile(int64_t batch_size, const std::optional<PlanChoice>& best) {
  int64_t step = last_step();
  if (!best) return step;
  MemoryPlan plan = best->plan;
  plan.batch_size = batch_size;
  plan.offloaded = {};
  for (; step >= 0; step--) {
    plan.recompute_blocks = at_step(step).of(shape().num_blocks);
    plan.light = step > 0;
    if (seconds(plan) < seconds(best->plan)) break;
  }
  return step;
}

std::optional<PlanChoice> Planner::cheapest(int64_t limit, bool whatever) {
  for (const Offload& offload : offload_sets()) {
    if (const auto found = cheapest_with(offload, limit, whatever)) return found;
  }
  return std::nullopt;
}

// A larger micro-batch needs more memory, and is cheaper with the same recompute. So if that can be chosen,
// the largest size without recompute is tried first, and then larger ones as long as they can still be
// cheaper.
std::optional<PlanChoice> Planner::cheapest_with(const Offload& offload, int64_t limit, bool whatever) {
  const Recompute& recompute = config_.memory.gradient_checkpointing;
  std::vector<int64_t> sizes{int64_t{config_.training.batch_size}};
  if (whatever || config_.training.batch_size.is_automatic()) sizes = batch_sizes();
  const auto fitting = [&](const Recompute& with) {
    return std::ranges::partition_point(
        sizes, [&](int64_t size) { return choice(size, with, offload).plan.total() <= limit; });
  };
  const bool choose = whatever || recompute.is_automatic();
  const Recompute least = choose ? Recompute(false) : recompute;
  std::optional<PlanChoice> best;
  const auto end = fitting(least);
  if (end != sizes.begin()) best = choice(*std::prev(end), least, offload);
  if (!choose) return best;
  for (auto size = std::max(end, fitting(true)); size != end;) {
    const int64_t last = last_worthwhile(*--size, best);
    if (last <= 0) continue;
    const std::optional<PlanChoice> found = first_step(*size, last, offload, limit);
    if (found && (!best || found->cost < best->cost)) best = found;
  }
  return best;
}

Config Planner::with(const PlanChoice& choice) const {
  Config config = config_;
  config.training.batch_size = choice.plan.batch_size;
  config.memory.gradient_checkpointing = choice.plan.recompute_setting();
  config.memory.offload = choice.plan.offload;
  return config;
}

void widen_once_if_it_fits(Config& config, MemoryPlan& plan, const std::filesystem::path& model,
                           const PlanTarget& target, int64_t most) {
  if (target.device == c10::kCPU || !plan.quantised || plan.recompute_blocks == 0 || plan.total() > most)
    return;
  Config wider = config;
  wider.memory.widen_once = true;
  const MemoryPlan with = plan_memory(wider, model, target);
  if (with.total() > most) return;
  config = wider;
  plan = with;
}

FilledPlan fill_defaults(const Config& config, const std::filesystem::path& model, const PlanTarget& target,
                         int64_t most, const std::function<void()>& after_plan) {
  const bool batch = config.training.batch_size.gives_way(),
             blocks = config.memory.gradient_checkpointing.gives_way();
  if (!batch && !blocks) return {config, std::nullopt};
  Config usual = config, open = config;
  if (batch) {
    usual.training.batch_size = int64_t{config.training.batch_size};
    open.training.batch_size = CountOrAuto::automatic();
    open.training.effective_batch_size = config.effective_batch_size();
    open.training.gradient_accumulation_steps.reset();
  }
  if (blocks) {
    usual.memory.gradient_checkpointing = false;
    open.memory.gradient_checkpointing = Recompute::automatic();
  }
  const bool asks_for_choice = usual.training.batch_size.is_automatic() ||
                               usual.memory.gradient_checkpointing.is_automatic() ||
                               usual.memory.offload.automatic;
  Planner planner(usual, model, target, after_plan);
  int64_t needed = 0;
  if (asks_for_choice) {
    if (most > 0 && planner.cheapest(most, /*whatever=*/false)) return {usual, std::nullopt};
  } else {
    const MemoryPlan& plan = planner.as_configured().plan;
    needed = plan.total();
    if (needed <= (most > 0 ? most : kFitsAnywhere)) return {usual, plan, false, needed};
  }
  Planner giving_way(open, model, target, after_plan);
  const auto choice = most > 0 ? giving_way.cheapest(most, /*whatever=*/false) : std::nullopt;
  if (choice) return {giving_way.with(*choice), choice->plan, true, needed};
  if (asks_for_choice) {
    if (most == 0) return {usual, std::nullopt};
    if (batch) open.training.batch_size = 1;
    if (blocks) open.memory.gradient_checkpointing = true;
    return {open, std::nullopt, true, needed};
  }
  const PlanChoice& smallest = giving_way.as_configured();
  return {giving_way.with(smallest), smallest.plan, true, needed};
}

}  // namespace trainer
