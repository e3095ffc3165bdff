#include "training/memory_advice.h"

#include <algorithm>
#include <bit>
#include <exception>
#include <iomanip>
#include <limits>
#include <sstream>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "config/weight_formats.h"
#include "training/prepare_model.h"
#include "training/rank_traffic.h"

namespace trainer {
namespace {

// The smallest micro-batch implies the half one: a set of parts contains another one when its bits do.
enum SavingPart : unsigned {
  kHalfBatch = 1,
  kSmallestBatch = 2 | kHalfBatch,
  kLight = 4,
  kRecompute = 16384 | kLight,
  kOffloadOptimizer = 8,
  kOffloadWeights = 16,
  kOffloadActivations = 32,
  kOffloadAll = kOffloadOptimizer | kOffloadWeights | kOffloadActivations,
  kAdamw8bit = 64,
  kAdafactor = 128,
  kLora = 256,
  kNoMasterWeights = 512,
  kBf16 = 1024,
  kQuantised = 2048,
  kShard = 4096,
  kShardAll = 8192,
};

// Combinations that keep the result, for fitting(). A part comes before what contains it.
const std::vector<unsigned>& exact_combinations() {
  static const std::vector<unsigned> list = [] {
    std::vector<unsigned> all;
    for (const unsigned offload : {0u, unsigned{kOffloadOptimizer}, unsigned{kOffloadWeights},
                                   kOffloadOptimizer | kOffloadWeights, unsigned{kOffloadAll}}) {
      for (const unsigned recompute : {0u, unsigned{kLight}, unsigned{kRecompute}}) {
        for (const unsigned batch : {0u, unsigned{kSmallestBatch}})
          all.push_back(offload | recompute | batch);
      }
    }
    std::ranges::stable_sort(all, {}, [](unsigned parts) { return std::popcount(parts); });
    return all;
  }();
  return list;
}

constexpr unsigned kAllExact = kSmallestBatch | kRecompute | kOffloadAll;

bool contains(unsigned all, unsigned parts) { return (all & parts) == parts; }

// Adafactor refuses keys that only AdamW has.
bool may_be_adafactor(const Config& config) {
  return config.optimizer.name.starts_with("adamw") &&
         std::ranges::none_of(
             std::initializer_list<const char*>{"adam_beta1", "adam_beta2", "adam_epsilon"},
             [&](const char* key) { return config.origins.contains(concat("optimizer.", key)); });
}

// A change of the configuration that gives another plan: where it applies, and what it sets.
struct Change {
  unsigned part;
  const char* text;  // how it changes the run's numbers; "": not at all
  bool (*applies)(const Config&);
  void (*apply)(Config&);
};

const std::vector<Change>& changes() {
  static const std::string in_bits = concat("frozen weights in ", smallest_weight_format().bits, " bits");
  static const std::vector<Change> list{
      {kAdamw8bit, "moments in 8 bits", [](const Config& config) { return config.optimizer.name == "adamw"; },
       [](Config& config) { config.optimizer.name = "adamw_8bit"; }},
      {kAdafactor, "another optimizer", may_be_adafactor,
       [](Config& config) { config.optimizer.name = "adafactor"; }},
      {kNoMasterWeights, "no fp32 copy of the weights",
       [](const Config& config) { return config.optimizer.master_weights; },
       [](Config& config) { config.optimizer.master_weights = false; }},
      {kBf16, "weights in bf16", [](const Config& config) { return config.model.dtype == ModelDtype::fp32; },
       [](Config& config) { config.model.dtype = ModelDtype::bf16; }},
      {kLora, "an adapter of rank 16 in place of all weights",
       [](const Config& config) { return !config.lora; }, [](Config& config) { config.lora.emplace(); }},
      {kQuantised, in_bits.c_str(),
       [](const Config& config) { return config.lora && !config.model.quantises(); },
       [](Config& config) { config.model.quantize = smallest_weight_format().name; }},
      {kShard, "",
       [](const Config& config) {
         return config.parallel.shard == Shard::none ||
                (config.parallel.shard == Shard::automatic && config.lora.has_value());
       },
       [](Config& config) { config.parallel.shard = Shard::optimizer; }},
      {kShardAll, "",
       [](const Config& config) {
         return config.parallel.shard != Shard::all && !(config.lora && config.lora->use_dora);
       },
       [](Config& config) { config.parallel.shard = Shard::all; }},
  };
  return list;
}

// Sets of changes. A part comes before what contains it.
constexpr unsigned kChanges[] = {kShard,
                                 kAdamw8bit,
                                 kAdafactor,
                                 kNoMasterWeights,
                                 kBf16,
                                 kLora,
                                 kQuantised,
                                 kQuantised | kAdamw8bit,
                                 kLora | kQuantised,
                                 kShard | kAdamw8bit,
                                 kShard | kQuantised,
                                 kShardAll,
                                 kShardAll | kAdamw8bit,
                                 kShardAll | kQuantised};

const Change& change_of(unsigned part) { return *std::ranges::find(changes(), part, &Change::part); }

std::vector<unsigned> single_bits(unsigned parts) {
  std::vector<unsigned> bits;
  for (; parts != 0; parts &= parts - 1) bits.push_back(parts & -parts);
  return bits;
}

bool comes_first(const Saving& one, const Saving& other) {
  if (one.same_result() != other.same_result()) return one.same_result();
  if (one.time != other.time) return one.time < other.time;
  return one.plan.total() < other.plan.total();
}

// Keeps at most so many from the front that keep the result, and that do not.
std::vector<Saving> first_of(const std::vector<Saving>& sorted, int same_result, int others) {
  std::vector<Saving> kept;
  for (const Saving& measure : sorted) {
    int& left = measure.same_result() ? same_result : others;
    if (left-- > 0) kept.push_back(measure);
  }
  return kept;
}

std::string recompute_value(const Recompute& recompute) {
  if (recompute == Recompute::light()) return "light";
  if (recompute == Recompute(true)) return "true";
  return concat(recompute.of(std::numeric_limits<int64_t>::max()));
}

}  // namespace

MemoryAdvice::MemoryAdvice(const Config& config, std::filesystem::path model, const PlanTarget& target,
                           const MemoryPlan& start, std::function<void()> after_plan)
    : config_(config),
      model_(std::move(model)),
      target_(target),
      start_(start),
      after_plan_(std::move(after_plan)) {
  config_.training.batch_size = start.batch_size;
  config_.memory.gradient_checkpointing =
      start.recompute_blocks == start.num_blocks ? Recompute(true) : start.recompute_setting();
  config_.memory.offload = start.offload;
  config_.memory.offload.automatic = false;
  config_.model.dtype = target.dtype == at::kFloat ? ModelDtype::fp32 : ModelDtype::bf16;
  add_variant(0);
  for (const unsigned parts : kChanges) add_variant(parts);
}

void MemoryAdvice::add_variant(unsigned parts) {
  if ((parts & (kShard | kShardAll)) != 0 && target_.ranks == 1) return;
  Config config = config_;
  std::vector<std::string> texts;
  for (const unsigned part : single_bits(parts)) {
    const Change& change = change_of(part);
    if (!change.applies(config)) return;
    change.apply(config);
    if (*change.text != '\0') texts.emplace_back(change.text);
  }
  PlanTarget target = target_;
  target.dtype = config.model.dtype == ModelDtype::fp32 ? at::kFloat : at::kBFloat16;
  variants_.push_back({parts, join(texts), config, Planner(config, model_, target, after_plan_)});
}

std::optional<PlanChoice> MemoryAdvice::changed_start(unsigned parts) const {
  PlanChoice wanted;
  wanted.plan = start_;
  wanted.plan.offload = config_.memory.offload;
  int64_t& size = wanted.plan.batch_size;
  const int64_t most = start_.batch_size;
  if (contains(parts, kSmallestBatch)) {
    if (most == 1) return std::nullopt;
    size = 1;
  } else if (contains(parts, kHalfBatch)) {
    if (most < 4 || most % 2 != 0) return std::nullopt;
    size = most / 2;
  }
  if (contains(parts, kRecompute)) {
    if (start_.recompute_blocks == start_.num_blocks) return std::nullopt;
    wanted.plan.recompute_blocks = start_.num_blocks;
  } else if (contains(parts, kLight)) {
    if (start_.light) return std::nullopt;
    wanted.plan.light = true;
  }
  const auto lower = [&](unsigned part, bool& is_below) {
    const bool is_new = contains(parts, part) && !is_below;
    is_below = is_below || contains(parts, part);
    return is_new || !contains(parts, part);
  };
  Offload& offload = wanted.plan.offload;
  const bool all_new = lower(kOffloadOptimizer, offload.optimizer) &&
                       lower(kOffloadWeights, offload.weights) &&
                       lower(kOffloadActivations, offload.activations);
  return all_new ? std::optional(wanted) : std::nullopt;
}

std::optional<Saving> MemoryAdvice::measure(Variant& variant, unsigned exact_parts) {
  const std::optional<PlanChoice> wanted = changed_start(exact_parts);
  if (!wanted || !variant.possible) return std::nullopt;
  const MemoryPlan& plan = wanted->plan;
  const bool sharded = shards_weights(variant.config, target_.ranks);
  if (sharded && plan.offload.weights) return std::nullopt;
  try {
    const PlanChoice& choice =
        variant.planner.choice(plan.batch_size, plan.recompute_setting(), plan.offload);
    Config changed = variant.config;
    changed.training.batch_size = plan.batch_size;
    if (contains(exact_parts, kLight))
      changed.memory.gradient_checkpointing =
          contains(exact_parts, kRecompute) ? Recompute(true) : Recompute::light();
    changed.memory.offload = plan.offload;
    const double seconds = variant.planner.seconds(choice.plan) + fetch_seconds(changed);
    return Saving{
        changed_settings(config_, changed), variant.changes, choice.plan,
        seconds / (variants_.front().planner.seconds(start_) + fetch_seconds(variants_.front().config))};
  } catch (const ConfigError&) {  // the model does not allow it
    variant.possible = false;
    return std::nullopt;
  }
}

// Returns the seconds to fetch sharded weights, from GPU to GPU over PCIe, if nothing else happens meanwhile.
double MemoryAdvice::fetch_seconds(const Config& config) const {
  if (!shards_weights(config, target_.ranks)) return 0;
  constexpr double rate = 20e9;
  PlanTarget target = target_;
  target.dtype = config.model.dtype == ModelDtype::fp32 ? at::kFloat : at::kBFloat16;
  const RankTraffic traffic = rank_traffic(config, model_, target);
  return static_cast<double>(traffic.in_step(config, target.ranks, config.training.batch_size) -
                             traffic.sent) /
         rate;
}

std::vector<Saving> MemoryAdvice::single() {
  std::vector<Saving> found;
  const auto add = [&](std::optional<Saving> one) {
    if (one && one->plan.total() <= start_.total() - start_.total() / 100) found.push_back(std::move(*one));
  };
  for (const unsigned parts : {kHalfBatch, kSmallestBatch, kLight, kRecompute, kOffloadOptimizer,
                               kOffloadWeights, kOffloadActivations})
    add(measure(variants_.front(), parts));
  for (auto variant = variants_.begin() + 1; variant != variants_.end(); ++variant) add(measure(*variant, 0));
  std::ranges::stable_sort(found, comes_first);
  return found;
}

std::optional<Saving> MemoryAdvice::fitting_at(Variant& variant, unsigned exact_parts, int64_t limit) {
  std::optional<Saving> one = measure(variant, exact_parts);
  return one && one->plan.total() <= limit ? std::move(one) : std::nullopt;
}

std::vector<Saving> MemoryAdvice::fitting(int64_t limit, int64_t room) {
  if (start_.total() <= limit) return {};
  unsigned possible = 0;  // parts that are not in the plan already
  for (const unsigned part :
       {kSmallestBatch, kLight, kRecompute, kOffloadOptimizer, kOffloadWeights, kOffloadActivations}) {
    if (changed_start(part)) possible |= part;
  }
  std::vector<Saving> found;
  std::vector<unsigned> enough;
  for (Variant& variant : variants_) {
    if (!fitting_at(variant, kAllExact & possible, limit)) continue;
    for (const unsigned combination : exact_combinations()) {
      const unsigned exact = combination & possible, parts = exact | variant.parts;
      if (std::ranges::any_of(enough, [&](unsigned part) { return contains(parts, part); })) continue;
      std::optional<Saving> one = fitting_at(variant, exact, limit);
      if (!one || one->plan.offloaded.total() > room) continue;
      enough.push_back(parts);
      found.push_back(std::move(*one));
    }
  }
  std::ranges::stable_sort(found, comes_first);
  return first_of(found, /*same_result=*/2, /*others=*/3);
}

std::string fitting_text(const std::vector<Saving>& measures) {
  std::ostringstream out;
  bool same_result = true;
  for (const Saving& measure : measures) {
    const bool is_first = &measure == &measures.front();
    if (is_first) out << "What makes it fit, by the memory plan" << (measure.same_result() ? ":" : "");
    if (same_result && !measure.same_result()) {
      out << (is_first ? ", but changes the numbers:" : "\nalso, but the numbers change:");
      same_result = false;
    }
    out << "\n  " << join(measure.settings, " ") << "  (" << bytes_string(measure.plan.total()) << ", "
        << std::fixed << std::setprecision(2) << measure.time << " times as long";
    if (!measure.same_result()) out << "; " << measure.changes;
    if (const int64_t offloaded = measure.plan.offloaded.total(); offloaded > 0)
      out << "; " << bytes_string(offloaded) << " offloaded";
    out << ")";
  }
  return out.str();
}

std::string what_would_fit(const Config& config, const std::filesystem::path& model, const PlanTarget& target,
                           int64_t limit, int64_t room) {
  try {
    Planner planner(config, model, target);
    return fitting_text(
        MemoryAdvice(config, model, target, planner.as_configured().plan).fitting(limit, room));
  } catch (const std::exception&) {  // the message that this is a part of says what happened
    return "";
  }
}

std::string shard_value(Shard shard) {
  switch (shard) {
    case Shard::none:
      return "none";
    case Shard::optimizer:
      return "optimizer";
    case Shard::all:
      return "all";
    case Shard::automatic:
      break;
  }
  return "auto";
}

std::string offload_value(const Offload& offload) {
  std::vector<std::string> names;
  if (offload.optimizer) names.emplace_back("optimizer");
  if (offload.weights) names.emplace_back("weights");
  if (offload.activations) names.emplace_back("activations");
  return concat("[", join(names, ","), "]");
}

std::vector<std::string> changed_settings(const Config& from, const Config& to) {
  std::vector<std::string> lines;
  if (to.training.batch_size != from.training.batch_size) {
    lines.push_back(concat("training.batch_size=", int64_t{to.training.batch_size}));
    if (!from.training.effective_batch_size)
      lines.push_back(concat("training.gradient_accumulation_steps=",
                             from.effective_batch_size() / to.training.batch_size));
  }
  if (to.memory.gradient_checkpointing != from.memory.gradient_checkpointing)
    lines.push_back(
        concat("memory.gradient_checkpointing=", recompute_value(to.memory.gradient_checkpointing)));
  if (to.memory.offload != from.memory.offload)
    lines.push_back(concat("memory.offload=", offload_value(to.memory.offload)));
  if (to.optimizer.name != from.optimizer.name) lines.push_back(concat("optimizer.name=", to.optimizer.name));
  if (to.optimizer.master_weights != from.optimizer.master_weights)
    lines.push_back(concat("optimizer.master_weights=", to.optimizer.master_weights ? "true" : "false"));
  if (to.lora && !from.lora) lines.emplace_back("lora={}");
  if (to.model.quantize != from.model.quantize) lines.push_back(concat("model.quantize=", to.model.quantize));
  if (to.model.dtype != from.model.dtype)
    lines.push_back(concat("model.dtype=", to.model.dtype == ModelDtype::bf16 ? "bf16" : "fp32"));
  if (to.parallel.shard != from.parallel.shard)
    lines.push_back(concat("parallel.shard=", shard_value(to.parallel.shard)));
  return lines;
}

}  // namespace trainer
