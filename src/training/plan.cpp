#include "trainer/training/plan.h"

#include <algorithm>
#include <iomanip>
#include <sstream>
#include <vector>

#include <ATen/core/grad_mode.h>

#include "trainer/base/strings.h"
#include "trainer/data/batching.h"
#include "trainer/memory/limit.h"
#include "trainer/models/load_model.h"
#include "trainer/training/evaluate.h"
#include "trainer/training/trainer.h"
#include "trainer/training/worst_batch.h"

#include "device/target_device.h"
#include "memory/meta_memory.h"
#include "memory/offload.h"
#include "objectives/objective.h"
#include "training/prepare_model.h"
#include "training/rank_traffic.h"

namespace trainer {
namespace {

bool updates(const MetaEvent& event) { return event.phase == MemoryPhase::update && event.bytes > 0; }
bool is_any(const MetaEvent&) { return true; }

// Returns the number of events up to the peak, the point at which their sum is largest: of the device's
// memory, or of what is offloaded. It is one of the events for which `counts`.
size_t events_to_peak(const std::vector<MetaEvent>& events, bool offloaded,
                      bool (*counts)(const MetaEvent&) = is_any) {
  int64_t live = 0, most = 0;
  size_t at = 0;
  for (size_t i = 0; i < events.size(); i++) {
    if (events[i].offloaded != offloaded) continue;
    live += events[i].bytes;
    if (live <= most || !counts(events[i])) continue;
    most = live;
    at = i + 1;
  }
  return at;
}

// To sum two gradients of one tensor, autograd adds the newer to the older in place if nothing else holds the
// older. On meta it never does: it allocates a third one and then frees the older, which another node made.
// Here the older one is freed before the sum is allocated, as on a real device.
std::vector<MetaEvent> with_sums_in_place(std::vector<MetaEvent> events) {
  std::vector<uint64_t> node_of;  // the node that allocated each block
  for (size_t i = 0; i < events.size(); i++) {
    const MetaEvent event = events[i];
    if (event.bytes < 0) continue;
    node_of.resize(static_cast<size_t>(event.block) + 1);
    node_of.back() = event.node;
    if (!event.sum || i + 1 >= events.size()) continue;
    const MetaEvent next = events[i + 1];
    if (next.bytes != -event.bytes) continue;
    const uint64_t made_by = node_of[static_cast<size_t>(next.block)];
    if (made_by == 0 || made_by == event.node) continue;
    events[i] = next;
    events[++i] = event;
  }
  return events;
}

// Gradients: what backward allocated and the update still uses.
std::vector<bool> gradient_blocks(const std::vector<MetaEvent>& events) {
  std::vector<bool> gradients;
  bool updating = false;
  for (const MetaEvent& event : events) {
    const auto block = static_cast<size_t>(event.block);
    updating = updating || updates(event);
    if (event.bytes > 0) {
      gradients.resize(std::max(gradients.size(), block + 1));
      gradients[block] = event.node != 0;
    } else if (!updating) {
      gradients[block] = false;
    }
  }
  return gradients;
}

int64_t& part_of(MemoryPlan& plan, const MetaEvent& event, bool gradient) {
  if (gradient) return plan.gradients;
  switch (event.phase) {
    case MemoryPhase::weights:
      return plan.weights;
    case MemoryPhase::adapters:
      return plan.adapters;
    case MemoryPhase::optimizer_state:
      return plan.optimizer_state;
    case MemoryPhase::gradients:
      return plan.gradients;
    case MemoryPhase::input:
      return plan.input;
    case MemoryPhase::loss:
      return plan.loss;
    case MemoryPhase::update:
      return plan.update;
    case MemoryPhase::forward:
    case MemoryPhase::recompute:
      break;
  }
  return event.node != 0 ? plan.recompute : plan.activations;
}

MemoryPlan live_after(size_t last, const std::vector<MetaEvent>& events, bool offloaded) {
  const std::vector<bool> gradients = gradient_blocks(events);
  MemoryPlan plan;
  std::vector<MetaEvent> born(gradients.size());
  for (size_t i = 0; i < last; i++) {
    if (events[i].offloaded != offloaded) continue;
    const auto block = static_cast<size_t>(events[i].block);
    if (events[i].bytes > 0) born[block] = events[i];
    part_of(plan, born[block], gradients[block]) += events[i].bytes;
  }
  return plan;
}

MemoryPlan at_peak(const std::vector<MetaEvent>& events, bool offloaded) {
  return live_after(events_to_peak(events, offloaded), events, offloaded);
}

// Graphs of passes (training/repeated_passes.h) keep their memory while the weights are updated, and the
// gradients while a pass runs.
MemoryPlan at_peak_with_graphs(const std::vector<MetaEvent>& events) {
  const auto passes_end = std::ranges::find_if(events, updates);
  const std::vector<MetaEvent> of_passes(events.begin(), passes_end);
  MemoryPlan plan = live_after(events_to_peak(of_passes, false), events, false);
  const MemoryPlan updating = live_after(events_to_peak(events, false, updates), events, false);
  plan.gradients = std::max(plan.gradients, updating.gradients);
  plan.optimizer_state = std::max(plan.optimizer_state, updating.optimizer_state);
  plan.update = updating.update;
  const MemoryPlan without = at_peak(events, false);  // maybe that of an evaluation, which drops the graphs
  return without.peak() > plan.peak() ? without : plan;
}

// Assumed rates, in bytes a second: of PCIe 4.0 with 16 lanes, and of an NVMe disk that reads and writes.
constexpr double kPcieRate = 25e9, kDiskRate = 2e9;

// The sizes of the plan's step.
struct PlannedStep {
  int64_t num_blocks, sample_tokens, micro_batches;
  bool quantised = false, records_passes = false;
};

// Returns the bytes that a step moves if the plan's step moved `planned`. The optimizer's state is read and
// written once a step, all else is taken as moved for each micro-batch.
int64_t moved_in_a_step(int64_t planned, const PlannedStep& step, int64_t optimizer_state,
                        const Config& config, int64_t ranks) {
  const int64_t micro_batches = micro_batches_of_a_rank(config, ranks, config.training.batch_size);
  const int64_t once = std::min(planned, 2 * optimizer_state);
  return once + (planned - once) / step.micro_batches * micro_batches;
}

OffloadedPlan offloaded_at_peak(const std::vector<MetaEvent>& events, int64_t moved, const PlannedStep& step,
                                const Config& config, const PlanTarget& target) {
  const MemoryPlan below = at_peak(events, /*offloaded=*/true);
  OffloadedPlan plan;
  plan.weights = below.weights + below.adapters;
  plan.gradients = below.gradients;
  plan.optimizer_state = below.optimizer_state;
  plan.activations = below.peak() - plan.total();
  plan.moved = moved_in_a_step(moved, step, plan.optimizer_state, config, target.ranks);
  plan.seconds = static_cast<double>(plan.moved) / (target.device == c10::kCPU ? kDiskRate : kPcieRate);
  return plan;
}

// LibTorch's allocators round sizes up to a multiple of this.
int64_t granularity(c10::DeviceType device) { return device == c10::kCPU ? 64 : 512; }

// Known sizes: a CUDA context with the kernels that a run loads, cuBLAS's workspaces as LibTorch makes them
// on Hopper (smaller before), one for each of the threads that run forward and backward (and for the stream
// on which they are recorded), the unused ends of the caching allocator's segments (20 MB each for large and
// small tensors), and for gaps between blocks a twentieth of what is allocated and freed in a step. What is
// allocated once, before the first step, leaves no gaps. Ranks have NCCL's buffers, some 10 MB for each of up
// to 32 channels, and more of its kernels.
int64_t reserve_of(const MemoryPlan& plan, const PlanTarget& target, bool records_passes) {
  if (target.device == c10::kCPU) return 0;
  constexpr int64_t nccl = 400'000'000;
  const int64_t workspaces = (records_passes ? 4 : 2) * int64_t{8} * 4096 * 1024;
  constexpr int64_t segments = 2 * 20 << 20;
  const int64_t passing = plan.activations + plan.recompute + plan.loss + plan.input + plan.update;
  return kCudaContextBytes + workspaces + segments + passing / 20 + (target.ranks > 1 ? nccl : 0);
}

// The largest micro-batch of an evaluation. Only one that is larger than those of training can need more than
// they do.
void run_evaluation(const Config& config, const Model& model, const SampleLengths& lengths) {
  if (config.training.eval_strategy == IntervalStrategy::no ||
      config.eval_batch_size() <= config.training.batch_size)
    return;
  at::NoGradGuard no_grad;
  Config larger = config;
  larger.training.batch_size = config.eval_batch_size();
  larger.training.effective_batch_size = 16 * config.eval_batch_size();  // as evaluate() reads them
  larger.training.gradient_accumulation_steps.reset();
  const EffectiveBatch batch = worst_batch(larger, model.encoder_decoder(), lengths);
  const CutLimits limits = cut_limits(config, model.encoder_decoder(), config.eval_batch_size());
  const MicroBatch micro = [&] {
    const InPhase phase(MemoryPhase::input);
    return collate(batch, cut(batch, limits, model.encoder_decoder()).front(), collate_options(config, model),
                   at::kMeta);
  }();
  model.loss(micro, ForwardContext(), make_objective(config)->options(Pass::evaluation));
}

bool has_quantised_weights(Model& model) {
  bool found = false;
  model.for_each_parameter([&](const std::string&, const Parameter& parameter) {
    found = found || (parameter.large && parameter.value.defined() && !parameter.value.is_tensor());
  });
  return found;
}

PlannedStep run_step(const Config& asked, const std::filesystem::path& path, const PlanTarget& target,
                     const OptimizerFactory& optimizer) {
  std::optional<InPhase> phase(MemoryPhase::weights);
  const std::unique_ptr<Model> model = model_on_meta(
      path, target.dtype, /*train_all=*/!asked.lora, quantisation_of(asked), asked.memory.offload.weights,
      shards_weights(asked, target.ranks) ? target.ranks : 1, score_head_for(asked));
  Config config = asked;
  settle_packing(config, *model, target.device);
  const auto added = static_cast<int64_t>(config.model.add_tokens.size());
  const int64_t rows = target.vocab_rows > 0 ? target.vocab_rows : model->vocab_size() + added;
  phase.emplace(MemoryPhase::adapters);
  prepare_for_training(*model, config, rows, at::kMeta);
  phase.emplace(MemoryPhase::optimizer_state);
  const Ranks ranks = Ranks::planned(target.ranks);
  Trainer trainer(config, *model, at::kMeta, /*total_steps=*/1, optimizer, ranks);
  phase.reset();
  const UpdateCheck check(*model);
  const EffectiveBatch batch =
      worst_batch(config, model->encoder_decoder(), target.lengths, target.ranks, target.device);
  const auto micro_batches = std::ssize(trainer.step(batch).cuts);
  run_evaluation(config, *model, target.lengths);
  return {model->num_blocks(), token_count(batch.samples[0], model->encoder_decoder()), micro_batches,
          has_quantised_weights(*model), trainer.records_passes()};
}

}  // namespace

int64_t recomputed_blocks(const Config& config, int64_t ranks, int64_t num_blocks) {
  const Offload& offload = config.memory.offload;
  const bool all = offload.weights || offload.activations || shards_weights(config, ranks);
  return all ? num_blocks : config.memory.gradient_checkpointing.of(num_blocks);
}

MemoryPlan plan_memory(const Config& config, const std::filesystem::path& model, const PlanTarget& target,
                       const OptimizerFactory& optimizer) {
  const PlanningFor planning(target.device);
  const MetaRecorder recorder(granularity(target.device));
  const int64_t moved = offload_use().moved;
  const PlannedStep step = run_step(config, model, target, optimizer);
  const std::vector<MetaEvent> events = with_sums_in_place(recorder.events());
  MemoryPlan plan = step.records_passes ? at_peak_with_graphs(events) : at_peak(events, /*offloaded=*/false);
  plan.offloaded = offloaded_at_peak(events, offload_use().moved - moved, step, config, target);
  plan.offload = config.memory.offload;
  plan.reserve = reserve_of(plan, target, step.records_passes);
  plan.batch_size = config.training.batch_size;
  plan.num_blocks = step.num_blocks;
  plan.sample_tokens = step.sample_tokens;
  plan.recompute_blocks = recomputed_blocks(config, target.ranks, plan.num_blocks);
  plan.light = plan.recompute_blocks > 0 || config.memory.gradient_checkpointing.is_light();
  plan.quantised = step.quantised;
  plan.widen_once = config.memory.widen_once && plan.recompute_blocks > 0;
  return plan;
}

std::vector<MemoryPlan::Part> MemoryPlan::parts() const {
  return {{"weights", "weights", weights},
          {"adapters", "adapters", adapters},
          {"gradients", "gradients", gradients},
          {"optimizer state", "optimizer_state", optimizer_state},
          {"activations kept", "activations", activations},
          {"recompute and backward", "recompute", recompute},
          {"output layer and loss", "loss", loss},
          {"input", "input", input},
          {"update", "update", update},
          {"CUDA overhead", "reserve", reserve}};
}

std::vector<MemoryPlan::Part> MemoryPlan::offloaded_parts() const {
  return {{"weights", "weights", offloaded.weights},
          {"gradients", "gradients", offloaded.gradients},
          {"optimizer state", "optimizer_state", offloaded.optimizer_state},
          {"activations", "activations", offloaded.activations}};
}

std::string plan_table(const MemoryPlan& plan, int64_t limit) {
  std::ostringstream out;
  const bool small = plan.total() < 100'000'000;
  const auto line = [&](const std::string& name, int64_t bytes) -> std::ostream& {
    return out << "  " << std::left << std::setw(24) << name << std::right << std::setw(10) << std::fixed
               << std::setprecision(3) << static_cast<double>(bytes) / (small ? 1e6 : 1e9)
               << (small ? " MB" : " GB");
  };
  for (const MemoryPlan::Part& part : plan.parts()) {
    if (part.bytes > 0) line(part.name, part.bytes) << "\n";
  }
  line("total", plan.total()) << "\n";
  if (limit > 0) {
    line("limit", limit) << "\n";
    const bool fits = plan.total() <= limit;
    line(fits ? "remains" : "missing", fits ? limit - plan.total() : plan.total() - limit) << "\n";
  }
  if (plan.offloaded.total() == 0) return out.str();
  out << "offloaded, not part of the total:\n";
  for (const MemoryPlan::Part& part : plan.offloaded_parts()) {
    if (part.bytes > 0) line(part.name, part.bytes) << "\n";
  }
  line("moved in a step", plan.offloaded.moved)
      << ", some " << std::setprecision(2) << plan.offloaded.seconds << " s\n";
  return out.str();
}

}  // namespace trainer
