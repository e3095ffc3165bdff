// trainer plan: computes the memory of a run, without weights, data or GPU.
#include "trainer/training/plan.h"

#include <iomanip>
#include <iostream>
#include <optional>
#include <sstream>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/progress.h"
#include "trainer/base/strings.h"
#include "trainer/commands/entry_points.h"
#include "trainer/memory/device_memory.h"
#include "trainer/memory/limit.h"
#include "trainer/models/load_model.h"
#include "trainer/run/translate_torch_errors.h"
#include "trainer/training/measures.h"
#include "trainer/training/solve_plan.h"

#include "commands/find_model.h"

namespace trainer {
namespace {

using Json = nlohmann::ordered_json;

// What the run of this configuration would choose. device: auto means a GPU, because plans are made for GPUs.
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
  return target;
}

const char* name_of(at::ScalarType type) { return type == at::kFloat ? "fp32" : "bf16"; }
const char* name_of(c10::DeviceType device) { return device == c10::kCPU ? "cpu" : "cuda"; }

Json names_of(const Offload& offload) {
  Json names = Json::array();
  if (offload.optimizer) names.push_back("optimizer");
  if (offload.weights) names.push_back("weights");
  if (offload.activations) names.push_back("activations");
  return names;
}

Json as_json(const PlanChoice& choice) {
  const MemoryPlan& plan = choice.plan;
  return {{"batch_size", plan.batch_size},
          {"recompute_blocks", plan.recompute_blocks},
          {"offload", names_of(plan.offload)},
          {"total", plan.total()},
          {"cost", choice.cost}};
}

// Of the sizes in a table, whose largest decides it.
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

std::string recomputed_text(const MemoryPlan& plan) {
  if (plan.recompute_blocks == 0) return "no block recomputed in the backward pass";
  return concat(plan.recompute_blocks, " of ", plan.num_blocks, " blocks recomputed in the backward pass");
}

std::string choice_text(const PlanChoice& choice) {
  const MemoryPlan& plan = choice.plan;
  std::ostringstream out;
  out << "batch_size " << plan.batch_size << ", " << recomputed_text(plan) << ": "
      << bytes_string(plan.total())
      << (plan.offloaded.total() > 0 ? concat(" and ", bytes_string(plan.offloaded.total()), " offloaded")
                                     : "")
      << ", " << std::fixed << std::setprecision(2) << choice.cost
      << " times as long as with nothing recomputed, split or offloaded";
  return out.str();
}

// Batch sizes down, blocks across; each cell is memory and time.
void print_search(Planner& planner, std::ostream& out) {
  const std::vector<int64_t> counts = planner.block_counts();
  const Unit unit = unit_for(planner.choice(planner.batch_sizes().back(), counts.front()).plan.total());
  out << "\n"
      << unit.name
      << " of memory and time of a step (1: no block recomputed, one micro-batch, nothing offloaded) by "
         "batch_size and recomputed blocks:\n  batch_size";
  for (const int64_t blocks : counts) out << std::setw(14) << blocks;
  for (const int64_t size : planner.batch_sizes()) {
    out << "\n  " << std::setw(10) << size;
    for (const int64_t blocks : counts) {
      const PlanChoice& choice = planner.choice(size, blocks);
      out << std::setw(8) << unit.text(choice.plan.total()) << " x" << std::fixed << std::setprecision(2)
          << choice.cost;
    }
  }
  out << "\n";
}

void print_measures(const std::vector<Measure>& measures, int64_t total, std::ostream& out) {
  if (measures.empty()) {
    out << "  none\n";
    return;
  }
  const Unit unit = unit_for(total);
  out << "      " << unit.name << "   saved    time\n";
  for (const Measure& measure : measures) {
    out << std::setw(8) << unit.text(measure.plan.total()) << std::setw(8)
        << unit.text(total - measure.plan.total()) << "  x" << std::fixed << std::setprecision(2)
        << std::setw(5) << measure.time << "  " << join(measure.settings, " ") << "  ("
        << (measure.same_result() ? "same result" : concat("changes numbers: ", measure.changes));
    if (measure.plan.offloaded.total() > 0)
      out << "; " << bytes_string(measure.plan.offloaded.total()) << " offloaded";
    out << ")\n";
  }
}

// The share of a GPU's memory that a run may use by default.
int64_t usable(int64_t gpu) { return gpu / 100 * 95; }

void print_gpus(Planner& planner, const std::vector<int64_t>& gpus, std::ostream& out) {
  out << "\n95 % of a GPU's memory:\n";
  for (const int64_t gpu : gpus) {
    out << "  " << std::setw(9) << bytes_string(gpu) << "  "
        << "this configuration "
        << (planner.as_configured().plan.total() <= usable(gpu) ? "fits" : "does not fit") << "; ";
    const std::optional<PlanChoice> best = planner.cheapest(usable(gpu), /*whatever=*/true);
    out << (best ? "the fastest that fits: " + choice_text(*best)
                 : "no batch_size fits, even with all blocks recomputed")
        << "\n";
  }
}

Json as_json(const std::vector<Measure>& measures, int64_t total) {
  Json rows = Json::array();
  for (const Measure& measure : measures) {
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
    for (const int64_t blocks : planner.block_counts()) rows.push_back(as_json(planner.choice(size, blocks)));
  }
  return rows;
}

Json gpus_as_json(Planner& planner, const std::vector<int64_t>& gpus) {
  Json rows = Json::array();
  for (const int64_t gpu : gpus) {
    const std::optional<PlanChoice> best = planner.cheapest(usable(gpu), /*whatever=*/true);
    rows.push_back({{"memory", gpu},
                    {"fits", planner.as_configured().plan.total() <= usable(gpu)},
                    {"fastest", best ? as_json(*best) : Json()}});
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

struct Planned {
  const PlanOptions& options;
  std::filesystem::path model;
  PlanTarget target;
  int64_t limit = 0;  // 0: none
  MemoryPlan plan;
  Planner& planner;
  Measures& measures;

  bool exceeds_limit() const { return limit > 0 && plan.total() > limit; }
  // Returns the bounds for combinations of measures: the limit, and what a run may use of each GPU.
  std::vector<int64_t> bounds() const {
    std::vector<int64_t> list;
    if (limit > 0) list.push_back(limit);
    for (const int64_t gpu : options.gpus) list.push_back(usable(gpu));
    return list;
  }
};

void print_json(const Planned& planned, std::ostream& out) {
  const MemoryPlan& plan = planned.plan;
  Json json{{"model", planned.model.string()},           {"device", name_of(planned.target.device)},
            {"dtype", name_of(planned.target.dtype)},    {"batch_size", plan.batch_size},
            {"recompute_blocks", plan.recompute_blocks}, {"num_blocks", plan.num_blocks},
            {"offload", names_of(plan.offload)}};
  for (const MemoryPlan::Part& part : plan.parts()) json["bytes"][part.key] = part.bytes;
  json["peak"] = plan.peak();
  json["total"] = plan.total();
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
    json["search"] = search_as_json(planned.planner);
    json["measures"] = as_json(planned.measures.single(), plan.total());
    json["fitting"] = Json::array();
    for (const int64_t bound : planned.bounds())
      json["fitting"].push_back(
          {{"limit", bound}, {"measures", as_json(planned.measures.fitting(bound), plan.total())}});
  }
  if (!planned.options.gpus.empty()) json["gpus"] = gpus_as_json(planned.planner, planned.options.gpus);
  out << json.dump(2) << "\n";
}

void print_measures(const Planned& planned, std::ostream& out) {
  const int64_t total = planned.plan.total();
  out << "\nMeasures that save memory, each for itself (time: estimated, x1: the configuration as it is, "
      << bytes_string(total) << "):\n";
  print_measures(planned.measures.single(), total, out);
  for (const int64_t bound : planned.bounds()) {
    if (total <= bound) continue;
    out << "\nTo fit in " << bytes_string(bound) << ":\n";
    print_measures(planned.measures.fitting(bound), total, out);
  }
}

void print_table(const Planned& planned, std::ostream& out) {
  const MemoryPlan& plan = planned.plan;
  out << planned.model.string() << " on " << name_of(planned.target.device) << " in "
      << name_of(planned.target.dtype) << ", batch_size " << plan.batch_size << ", " << recomputed_text(plan)
      << "\n"
      << plan_table(plan, planned.limit);
  if (planned.target.device != c10::kCPU) {
    out << "Library reserve: from known sizes, not measured on a GPU.\n";
  }
  if (planned.options.search) {
    print_search(planned.planner, out);
    print_measures(planned, out);
  }
  if (!planned.options.gpus.empty()) print_gpus(planned.planner, planned.options.gpus, out);
}

void run_plan(const PlanOptions& options) {
  const Config& config = options.config;
  set_up_cpu(config.training.num_threads);
  const std::filesystem::path model = find_model(config.model.path);
  const PlanTarget target = target_for(config);
  const int64_t limit = limit_of(config);
  std::optional<Progress> shown(std::in_place, "planning: plans made");
  shown->hide_parts();
  const auto after_plan = [&] { shown->add(); };
  Planner planner(config, model, target, after_plan);
  const std::optional<PlanChoice> solved =
      limit > 0 ? planner.cheapest(limit, /*whatever=*/false) : std::nullopt;
  const MemoryPlan plan = (solved ? *solved : planner.as_configured()).plan;
  Measures measures(config, model, target, plan, after_plan);
  const Planned planned{options, model, target, limit, plan, planner, measures};
  std::ostringstream text;  // printed when all is known: it may go to the terminal that shows the progress
  (options.json ? print_json : print_table)(planned, text);
  const std::vector<Measure> advised =
      planned.exceeds_limit() ? measures.fitting(limit) : std::vector<Measure>();
  shown.reset();
  std::cout << text.str() << std::flush;
  if (!planned.exceeds_limit()) return;
  std::string message =
      concat("the plan needs ", bytes_string(plan.total() - limit), " more than memory.limit allows");
  if (const std::string advice = fitting_text(advised); !advice.empty()) message += "\n" + advice;
  throw of_family(ErrorCode::oom_plan, OutOfMemoryError(message));
}

}  // namespace
}  // namespace trainer

extern "C" void trainer_core_plan(const trainer::PlanOptions& options) {
  trainer::translate_torch_errors("The plan itself did not fit; it needs some 200 MB.",
                                  [&] { trainer::run_plan(options); });
}
