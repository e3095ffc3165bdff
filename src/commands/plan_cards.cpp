#include "commands/plan_cards.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

#include "trainer/base/strings.h"

namespace trainer {
namespace {

// A step of the whole run over one connection.
struct LinkTime {
  Link link;
  double seconds;  // for what each GPU sends
  double hidden;   // the part of them during the last backward pass
  double speed;    // as a multiple of one GPU
};

struct StepTime {
  int64_t sent;       // bytes that each GPU sends
  int64_t early;      // the part of them that may travel during the last backward pass
  double arithmetic;  // seconds on each GPU
  double last_pass;   // the part of them in the last backward pass
  double on_one;      // seconds of the same step on one GPU, if it had the memory
  int64_t tokens;     // tokens of the step, with samples of full length
  std::vector<LinkTime> links;
};

// The plans and times of one entry of --gpus.
struct OnCards {
  Cards cards;
  MemoryPlan configured;
  bool shards_state = false, shards_weights = false;  // RankTraffic
  bool fits = false;
  std::optional<PlanChoice> fastest;
  std::optional<StepTime> step;  // the step's time if something fits, on several GPUs

  // Bytes that what fits offloads, for each GPU.
  int64_t offloaded() const {
    return fits ? configured.offloaded.total() : fastest ? fastest->plan.offloaded.total() : 0;
  }
};

// Sums overlap with the last backward pass (training/gradient_sums.h), which is two thirds of a micro-batch's
// arithmetic or, with recompute, more.
StepTime time_of(PlansByRanks& plans, const Cards& cards, const MemoryPlan& plan) {
  const MemoryPlan& alone =
      plans.planner(1).choice(plan.batch_size, plan.recompute_setting(), plan.offload).plan;
  const RankTraffic& traffic = plans.traffic(cards.count());
  const double arithmetic = plans.planner(cards.count()).seconds(plan);
  const auto micro_batches =
      static_cast<double>(micro_batches_of_a_rank(plans.config(), cards.count(), plan.batch_size));
  StepTime time{traffic.in_step(plans.config(), cards.count(), plan.batch_size),
                plan.offload.weights ? 0 : traffic.early,
                arithmetic,
                arithmetic / micro_batches * 2 / 3,
                plans.planner(1).seconds(alone),
                plan.sample_tokens * plans.config().effective_batch_size(),
                {}};
  for (const Link& link : links_for(cards)) {
    const double seconds = static_cast<double>(time.sent) / link.rate;
    const double hidden = std::min(static_cast<double>(time.early) / link.rate, time.last_pass);
    time.links.push_back({link, seconds, hidden, time.on_one / (time.arithmetic + seconds - hidden)});
  }
  return time;
}

OnCards plan_on(PlansByRanks& plans, const Cards& cards) {
  Planner& planner = plans.planner(cards.count());
  OnCards on;
  on.cards = cards;
  on.configured = planner.as_configured().plan;
  on.shards_state = plans.traffic(cards.count()).shards_state;
  on.shards_weights = plans.traffic(cards.count()).shards_weights;
  on.fits = on.configured.total() <= usable(cards.memory);
  on.fastest = planner.cheapest(usable(cards.memory), /*whatever=*/true);
  if (cards.count() > 1 && (on.fits || on.fastest))
    on.step = time_of(plans, cards, on.fits ? on.configured : on.fastest->plan);
  return on;
}

void print_step(const OnCards& on, std::ostream& out) {
  const StepTime& step = *on.step;
  out << std::fixed << std::setprecision(2) << "             a step of " << grouped(step.tokens)
      << " tokens, estimated with " << (on.fits ? "this configuration" : "the fastest that fits") << ": "
      << step.arithmetic << " s of arithmetic on each GPU, and each sends " << bytes_string(step.sent)
      << ":\n";
  for (const LinkTime& link : step.links) {
    out << "               " << std::left << std::setw(30) << link.link.name << std::right << std::setw(9)
        << bytes_string(static_cast<int64_t>(link.link.rate)) << "/s  " << std::setprecision(2)
        << std::setw(7) << link.seconds << " s, " << link.hidden << " s of it during the last backward pass, "
        << link.speed << " times as fast as one GPU\n";
  }
}

void print_one(const OnCards& on, int64_t effective_batch_size, std::ostream& out) {
  const int64_t gpus = on.cards.count();
  out << "  " << std::setw(9) << on.cards.text() << "  this configuration "
      << (on.fits ? "fits" : "does not fit")
      << (gpus > 1 ? concat(", ", bytes_string(on.configured.total()), " on each",
                            on.shards_weights ? " with blocks' weights and the optimizer's state sharded"
                            : on.shards_state ? " with the optimizer's state sharded"
                                              : "")
                   : "")
      << "; "
      << (on.fastest ? "the fastest that fits: " + choice_text(*on.fastest)
                     : "no batch_size fits, even with gradient checkpointing in all layers")
      << "\n";
  if (gpus > effective_batch_size)
    out << "             " << gpus - effective_batch_size << " of the GPUs get no sample: a step has "
        << effective_batch_size << " (training.effective_batch_size)\n";
  if (on.offloaded() > 0 && on.cards.per_machine > 1)
    out << "             " << bytes_string(on.offloaded())
        << " offloaded for each GPU: " << bytes_string(on.offloaded() * on.cards.per_machine)
        << " of main memory on each machine\n";
  if (on.step) print_step(on, out);
}

nlohmann::ordered_json step_as_json(const StepTime& step) {
  nlohmann::ordered_json json{{"tokens", step.tokens},
                              {"sent", step.sent},
                              {"sent_early", step.early},
                              {"arithmetic_seconds", step.arithmetic},
                              {"last_backward_seconds", step.last_pass},
                              {"one_gpu_seconds", step.on_one},
                              {"links", nlohmann::ordered_json::array()}};
  for (const LinkTime& link : step.links)
    json["links"].push_back({{"link", link.link.key},
                             {"rate", link.link.rate},
                             {"seconds", link.seconds},
                             {"hidden_seconds", link.hidden},
                             {"speed", link.speed}});
  return json;
}

}  // namespace

PlansByRanks::PlansByRanks(const Config& config, std::filesystem::path model, const PlanTarget& target,
                           std::function<void()> after_plan)
    : config_(config), model_(std::move(model)), target_(target), after_plan_(std::move(after_plan)) {}

PlanTarget PlansByRanks::target_for(int64_t ranks) const {
  PlanTarget target = target_;
  target.ranks = ranks;
  return target;
}

Planner& PlansByRanks::planner(int64_t ranks) {
  return planners_.try_emplace(ranks, config_, model_, target_for(ranks), after_plan_).first->second;
}

const MemoryPlan& PlansByRanks::start(int64_t ranks) {
  if (!starts_.contains(ranks)) starts_.emplace(ranks, planner(ranks).as_configured().plan);
  return starts_.at(ranks);
}

void PlansByRanks::set_start(int64_t ranks, const MemoryPlan& plan) { starts_.insert_or_assign(ranks, plan); }

MemoryAdvice& PlansByRanks::advice(int64_t ranks) {
  return advice_.try_emplace(ranks, config_, model_, target_for(ranks), start(ranks), after_plan_)
      .first->second;
}

const RankTraffic& PlansByRanks::traffic(int64_t ranks) {
  if (!traffic_.contains(ranks)) traffic_.emplace(ranks, rank_traffic(config_, model_, target_for(ranks)));
  return traffic_.at(ranks);
}

int64_t usable(int64_t gpu) { return gpu / 100 * 95; }

void print_cards(PlansByRanks& plans, const std::vector<Cards>& list, std::ostream& out) {
  out << "\n95 % of a GPU's memory:\n";
  for (const Cards& cards : list)
    print_one(plan_on(plans, cards), plans.config().effective_batch_size(), out);
  if (std::ranges::any_of(list, [](const Cards& cards) { return cards.count() > 1; }))
    out << "Times: each GPU computes at 50 TFLOP/s, and sends at the rate of the line while all send. "
           "Nothing is measured. On GPUs that compute faster, sending weighs more.\n";
}

nlohmann::ordered_json cards_as_json(PlansByRanks& plans, const std::vector<Cards>& list) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Cards& cards : list) {
    const OnCards on = plan_on(plans, cards);
    nlohmann::ordered_json row{{"memory", cards.memory},
                               {"gpus_per_machine", cards.per_machine},
                               {"machines", cards.machines},
                               {"total", on.configured.total()},
                               {"shards", on.shards_state},
                               {"divides", on.shards_weights},
                               {"fits", on.fits},
                               {"fastest", on.fastest ? as_json(*on.fastest) : nlohmann::ordered_json()}};
    if (on.offloaded() > 0) row["offloaded_on_machine"] = on.offloaded() * cards.per_machine;
    if (on.step) row["step"] = step_as_json(*on.step);
    rows.push_back(row);
  }
  return rows;
}

nlohmann::ordered_json names_of(const Offload& offload) {
  nlohmann::ordered_json names = nlohmann::ordered_json::array();
  if (offload.optimizer) names.push_back("optimizer");
  if (offload.weights) names.push_back("weights");
  if (offload.activations) names.push_back("activations");
  return names;
}

nlohmann::ordered_json as_json(const PlanChoice& choice) {
  const MemoryPlan& plan = choice.plan;
  return {{"batch_size", plan.batch_size}, {"recompute_blocks", plan.recompute_blocks},
          {"light", plan.light},           {"offload", names_of(plan.offload)},
          {"total", plan.total()},         {"cost", choice.cost}};
}

std::string recomputed_text(const MemoryPlan& plan) {
  if (plan.recompute_blocks == 0)
    return plan.light ? "light gradient checkpointing" : "no gradient checkpointing";
  return concat(plan.recompute_blocks, " of ", plan.num_blocks, " layers with gradient checkpointing",
                plan.widen_once ? ", their weights widened once" : "");
}

std::string choice_text(const PlanChoice& choice) {
  const MemoryPlan& plan = choice.plan;
  std::ostringstream out;
  out << "batch_size " << plan.batch_size << ", " << recomputed_text(plan) << ": "
      << bytes_string(plan.total())
      << (plan.offloaded.total() > 0 ? concat(" and ", bytes_string(plan.offloaded.total()), " offloaded")
                                     : "")
      << ", " << std::fixed << std::setprecision(2) << choice.cost
      << " times as long as with no checkpointing, splitting or offloading";
  return out.str();
}

}  // namespace trainer
