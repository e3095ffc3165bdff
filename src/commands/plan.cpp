// trainer plan: computes the memory of a run, without weights, data or GPU.
#include "trainer/training/plan.h"

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <limits>
#include <optional>
#include <sstream>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/device/gpu_probe.h"
#include "trainer/memory/device_memory.h"
#include "trainer/memory/limit.h"
#include "trainer/models/load_model.h"
#include "trainer/training/solve_plan.h"

#include "base/foreign_errors.h"
#include "base/progress.h"
#include "commands/find_model.h"
#include "commands/library.h"
#include "commands/plan_cards.h"
#include "ops/cpu_products.h"
#include "run/end_of_run.h"
#include "run/run_model.h"
#include "run/run_plan.h"
#include "training/memory_advice.h"

namespace trainer {
namespace {

using Json = nlohmann::ordered_json;

// Returns the target that a run of this configuration would choose. device: auto means a GPU, because plans
// are made for GPUs. parallel.gpus: all counts as one, because their number is not known here.
PlanTarget target_for(const Config& config) {
  PlanTarget target;
  target.device = config.device == "cpu" ? c10::kCPU : c10::kCUDA;
  switch (config.model.dtype) {
    case ModelDtype::bf16:
      target.dtype = at::kBFloat16;
      break;
    case ModelDtype::fp32:
      target.dtype = at::kFloat;
      break;
    case ModelDtype::automatic:
      target.dtype = automatic_dtype(target.device);
  }
  if (target.device != c10::kCPU) target.ranks = config.parallel.gpus.of(1);
  return target;
}

const char* name_of(at::ScalarType type) { return type == at::kFloat ? "fp32" : "bf16"; }
const char* name_of(c10::DeviceType device) { return device == c10::kCPU ? "cpu" : "cuda"; }

// The unit of the sizes in a table; the largest one decides it.
struct Unit {
  const char* name;
  double bytes;

  std::string text(int64_t size) const {
    std::ostringstream out;
    out << std::fixed << std::setprecision(1) << static_cast<double>(size) / bytes;
    return out.str();
  }
};

Unit unit_for(int64_t largest) { return largest < 1'000'000'000 ? Unit{"MB", 1e6} : Unit{"GB", 1e9}; }

// Batch sizes down, blocks across; each cell is memory and time.
void print_search(Planner& planner, std::ostream& out) {
  const std::vector<Recompute> columns = planner.recomputes();
  const Offload offload = planner.offload_sets().front();
  const Unit unit = unit_for(planner.choice(planner.batch_sizes().back(), 0).plan.total());
  out << "\n"
      << unit.name
      << " of memory and time of a step (1: no gradient checkpointing, one micro-batch, nothing "
         "offloaded) by batch_size and layers with gradient checkpointing:\n  batch_size";
  for (const Recompute& column : columns) {
    out << std::setw(14);
    column == Recompute::light() ? out << "light" : out << column.of(std::numeric_limits<int64_t>::max());
  }
  for (const int64_t size : planner.batch_sizes()) {
    out << "\n  " << std::setw(10) << size;
    for (const Recompute& column : columns) {
      const PlanChoice& choice = planner.choice(size, column, offload);
      out << std::setw(8) << unit.text(choice.plan.total()) << " x" << std::fixed << std::setprecision(2)
          << choice.cost;
    }
  }
  out << "\n";
}

void print_savings(const std::vector<Saving>& measures, int64_t total, std::ostream& out) {
  if (measures.empty()) {
    out << "  none\n";
    return;
  }
  const Unit unit = unit_for(total);
  out << "      " << unit.name << "   saved    time\n";
  for (const Saving& measure : measures) {
    out << std::setw(8) << unit.text(measure.plan.total()) << std::setw(8)
        << unit.text(total - measure.plan.total()) << "  x" << std::fixed << std::setprecision(2)
        << std::setw(5) << measure.time << "  " << join(measure.settings, " ") << "  ("
        << (measure.same_result() ? "same result" : concat("changes numbers: ", measure.changes));
    if (measure.plan.offloaded.total() > 0)
      out << "; " << bytes_string(measure.plan.offloaded.total()) << " offloaded";
    out << ")\n";
  }
}

Json as_json(const std::vector<Saving>& measures, int64_t total) {
  Json rows = Json::array();
  for (const Saving& measure : measures) {
    rows.push_back({{"settings", measure.settings},
                    {"same_result", measure.same_result()},
                    {"changes", measure.changes},
                    {"total", measure.plan.total()},
                    {"saved", total - measure.plan.total()},
                    {"offloaded", measure.plan.offloaded.total()},
                    {"time", measure.time}});
  }
  return rows;
}

Json search_as_json(Planner& planner) {
  Json rows = Json::array();
  for (const int64_t size : planner.batch_sizes()) {
    for (const Recompute& recompute : planner.recomputes())
      rows.push_back(as_json(planner.choice(size, recompute, planner.offload_sets().front())));
  }
  return rows;
}

// Returns memory.limit in bytes. A share cannot be used: it refers to a device that may not be here.
int64_t limit_of(const Config& config) {
  const std::optional<int64_t> bytes = MemoryLimit::parse(config.memory.limit).bytes();
  if (!bytes && !config.memory.limit.empty()) {
    throw ConfigError(
        "memory.limit: a plan needs a size (24GB); a share needs a device, which a plan does not query");
  }
  return bytes.value_or(0);
}

// Returns the memory that a run may use on the device that is here; 0: there is no GPU.
int64_t memory_here(c10::DeviceType device) {
  if (device == c10::kCPU) return memory_for_run(c10::Device(device));
  int64_t largest = 0;
  for (const Gpu& gpu : system_gpus().look().visible()) largest = std::max(largest, usable(gpu.total));
  return largest;
}

struct Bound {
  int64_t bytes, ranks;
};

struct Planned {
  const PlanOptions& options;
  std::filesystem::path model;
  PlanTarget target;
  int64_t limit = 0;  // 0: none
  MemoryPlan plan;
  PlansByRanks& plans;
  std::string chosen;  // why other numbers than the usual ones; "" if they are those

  bool exceeds_limit() const { return limit > 0 && plan.total() > limit; }
  // Returns where combinations of measures shall fit: in the limit, and in what a run may use of each GPU.
  std::vector<Bound> bounds() const {
    std::vector<Bound> list;
    if (limit > 0) list.push_back({limit, target.ranks});
    for (const Cards& cards : options.gpus) list.push_back({usable(cards.memory), cards.count()});
    return list;
  }
};

void print_json(const Planned& planned, std::ostream& out) {
  const MemoryPlan& plan = planned.plan;
  Json json{{"model", planned.model.string()},
            {"device", name_of(planned.target.device)},
            {"dtype", name_of(planned.target.dtype)},
            {"batch_size", plan.batch_size},
            {"recompute_blocks", plan.recompute_blocks},
            {"num_blocks", plan.num_blocks},
            {"light", plan.light},
            {"widen_once", plan.widen_once},
            {"offload", names_of(plan.offload)}};
  for (const MemoryPlan::Part& part : plan.parts()) json["bytes"][part.key] = part.bytes;
  json["peak"] = plan.peak();
  json["total"] = plan.total();
  json["ranks"] = planned.target.ranks;
  if (plan.offloaded.total() > 0) {
    for (const MemoryPlan::Part& part : plan.offloaded_parts()) json["offloaded"][part.key] = part.bytes;
    json["offloaded"]["total"] = plan.offloaded.total();
    json["offloaded"]["moved"] = plan.offloaded.moved;
    json["offloaded"]["seconds"] = plan.offloaded.seconds;
  }
  if (planned.limit > 0) {
    json["limit"] = planned.limit;
    json["fits"] = !planned.exceeds_limit();
  }
  if (planned.options.search) {
    json["search"] = search_as_json(planned.plans.planner(planned.target.ranks));
    json["measures"] = as_json(planned.plans.advice(planned.target.ranks).single(), plan.total());
    json["fitting"] = Json::array();
    for (const auto& [bytes, ranks] : planned.bounds()) {
      const std::vector<Saving> fitting = planned.plans.advice(ranks).fitting(bytes);
      json["fitting"].push_back({{"limit", bytes},
                                 {"ranks", ranks},
                                 {"measures", as_json(fitting, planned.plans.start(ranks).total())}});
    }
  }
  if (!planned.options.gpus.empty()) json["gpus"] = cards_as_json(planned.plans, planned.options.gpus);
  out << json.dump(2) << "\n";
}

void print_savings(const Planned& planned, std::ostream& out) {
  const int64_t total = planned.plan.total();
  out << "\nMeasures that save memory, each for itself (time: estimated, x1: the configuration as it is, "
      << bytes_string(total) << "):\n";
  print_savings(planned.plans.advice(planned.target.ranks).single(), total, out);
  for (const auto& [bytes, ranks] : planned.bounds()) {
    const int64_t needed = planned.plans.start(ranks).total();
    if (needed <= bytes) continue;
    out << "\nTo fit in " << bytes_string(bytes) << (ranks > 1 ? concat(" on each of ", ranks, " GPUs") : "")
        << ":\n";
    print_savings(planned.plans.advice(ranks).fitting(bytes), needed, out);
  }
}

std::string ranks_text(const Planned& planned) {
  const int64_t ranks = planned.target.ranks;
  if (ranks == 1) return "";
  const RankTraffic& traffic = planned.plans.traffic(ranks);
  return concat(", on each of ", ranks, " GPUs, which ",
                traffic.shards_weights
                    ? "shard the blocks' weights and the optimizer's state (parallel.shard)"
                : traffic.shards_state ? "shard the optimizer's state (parallel.shard)"
                                       : "each have all of the optimizer's state");
}

void print_table(const Planned& planned, std::ostream& out) {
  const MemoryPlan& plan = planned.plan;
  out << planned.model.string() << " on " << name_of(planned.target.device) << " in "
      << name_of(planned.target.dtype) << ", batch_size " << plan.batch_size << ", " << recomputed_text(plan)
      << ranks_text(planned) << "\n"
      << planned.chosen << plan_table(plan, planned.limit);
  if (planned.target.device != c10::kCPU) {
    out << "CUDA overhead: from known sizes, not measured on this GPU.\n";
  }
  if (planned.options.search) {
    print_search(planned.plans.planner(planned.target.ranks), out);
    print_savings(planned, out);
  }
  if (!planned.options.gpus.empty()) print_cards(planned.plans, planned.options.gpus, out);
}

// "Chosen to fit into 24 GB: the usual batch_size 8 without recompute needs 45.1 GB."
std::string why_chosen(const FilledPlan& filled, int64_t planned, int64_t most) {
  if (!filled.gave_way) return "";
  const std::string chosen = most == 0 ? "The least that it needs"
                             : planned <= most
                                 ? concat("Chosen to fit into ", bytes_string(most))
                                 : concat("The least that it needs, more than ", bytes_string(most));
  return concat(chosen, ": batch_size ", int64_t{TrainingConfig{}.batch_size},
                " without recompute, the usual, ",
                filled.usual > 0 ? concat("takes ", bytes_string(filled.usual)) : "does not fit",
                most > 0 ? "" : ". For a GPU of yours: memory.limit=24GB, or --gpus 24GB", "\n");
}

// The head is that of a run, as far as it is known without the data.
Config with_head(Config config, const std::filesystem::path& model) {
  config.model.path = model.string();
  settle_head(config);
  return config;
}

void run_plan(const PlanOptions& options) {
  set_up_cpu(options.config.training.num_threads);
  set_cpu_products(options.config.training.cpu_products);
  const std::filesystem::path model = find_model(options.config.model.path);
  const Config asked = with_head(options.config, model);
  const PlanTarget target = target_for(asked);
  const int64_t limit = limit_of(options.config);
  std::optional<Progress> shown(std::in_place, "planning: plans made");
  shown->hide_parts();
  const auto after_plan = [&] { shown->add(); };
  const int64_t most = limit > 0 ? limit : memory_here(target.device);
  const FilledPlan filled = fill_defaults(asked, model, target, most, after_plan);
  const Config& config = filled.config;
  PlansByRanks plans(config, model, target, after_plan);
  Planner& planner = plans.planner(target.ranks);
  const std::optional<PlanChoice> solved =
      limit > 0 ? planner.cheapest(limit, /*whatever=*/false) : std::nullopt;
  MemoryPlan plan = (solved ? *solved : planner.as_configured()).plan;
  plans.set_start(target.ranks, plan);
  Config planned_config = config;
  if (solved) planned_config = planner.with(*solved);
  widen_once_if_it_fits(planned_config, plan, model, target, most);
  const Planned planned{options, model, target, limit, plan, plans, why_chosen(filled, plan.total(), most)};
  std::ostringstream text;  // printed when all is known: it may go to the terminal that shows the progress
  (options.json ? print_json : print_table)(planned, text);
  const std::vector<Saving> advised =
      planned.exceeds_limit() ? plans.advice(target.ranks).fitting(limit) : std::vector<Saving>();
  shown.reset();
  std::cout << printable(text.str()) << std::flush;
  if (!planned.exceeds_limit()) return;
  std::string message =
      concat("the plan needs ", bytes_string(plan.total() - limit), " more than memory.limit allows");
  if (const std::string advice = fitting_text(advised); !advice.empty()) message += "\n" + advice;
  throw of_family(ErrorCode::oom_plan, OutOfMemoryError(message));
}

const InLibrary plan_in_library(+[](PlanOptions& options) {
  translate_torch_errors("The plan itself did not fit; it needs some 200 MB.", [&] { run_plan(options); });
});

}  // namespace
}  // namespace trainer
