#include <algorithm>
#include <iomanip>
#include <sstream>

#include "trainer/base/strings.h"
#include "trainer/training/solve_plan.h"

#include "base/dynamic_library.h"
#include "commands/checkup.h"
#include "commands/find_model.h"
#include "device/gpu_links.h"
#include "parallel/gloo_group.h"
#include "run/end_of_run.h"
#include "training/rank_traffic.h"

namespace trainer {
namespace {

constexpr const char* kLinks = "gpu links";

// More of a step than this is worth a word.
constexpr double kMuch = 0.25;

std::string two_digits(double number) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(2) << number;
  return out.str();
}

// Returns the rate of the slowest pair; 0 if one was not measured.
double tell_of_pairs(Checkup& checkup, const std::vector<GpuLink>& links) {
  double slowest = links.front().rate;
  for (const GpuLink& link : links) {
    Finding& finding =
        !link.problem.empty() ? checkup.warning(kLinks, link.text(), "the rate of this pair is not known")
        : link.direct
            ? checkup.ok(kLinks, link.text())
            : checkup.warning(
                  kLinks, link.text(),
                  "these GPUs cannot use each other's memory: gradients travel slowly between them. "
                  "LoRA sends little; full fine-tuning wants a larger "
                  "training.effective_batch_size");
    finding.values = {{"first", link.first},
                      {"second", link.second},
                      {"direct", link.direct},
                      {"path", link.path},
                      {"rate", link.rate}};
    slowest = std::min(slowest, link.rate);
  }
  return slowest;
}

bool check_nccl(Checkup& checkup) {
  if (DynamicLibrary("libnccl.so.2").is_open()) {
    checkup.ok("nccl", "libnccl.so.2 is here");
    return true;
  }
  checkup.warning("nccl", "libnccl.so.2 is missing: GPUs exchange gradients through main memory, by Gloo",
                  "install nvidia-nccl-cu13, which the package of torch for CUDA brings along");
  return false;
}

// Returns the rate; 0 if there is none.
double check_gloo(Checkup& checkup) {
  try {
    const double rate = measure_sum_rate();
    checkup
        .ok("gloo", concat(bytes_string(static_cast<int64_t>(rate)),
                           "/s from each of two ranks on this machine, in main memory (--ranks, and GPUs "
                           "without NCCL)"))
        .values = {{"rate", rate}};
    return rate;
  } catch (const Error& error) {
    checkup.warning("gloo", error.what(), "several processes need it; GLOO_SOCKET_IFNAME names an interface");
    return 0;
  }
}

// Reports the time of the configured run's step on its GPUs, or, if it names one, on all that are visible.
void tell_of_step(Checkup& checkup, Config config, int64_t visible, double rate) {
  const int64_t configured = config.parallel.gpus.of(visible), ranks = configured > 1 ? configured : visible;
  PlanTarget target;  // the CPU: bytes and arithmetic are the same, and no kernel is compiled for them
  target.dtype = config.model.dtype == ModelDtype::fp32 ? at::kFloat : at::kBFloat16;
  target.ranks = ranks;
  const std::filesystem::path model = find_model(config.model.path);
  Planner planner(config, model, target);
  const MemoryPlan plan = planner.as_configured().plan;
  const int64_t sent = rank_traffic(config, model, target).in_step(config, ranks, plan.batch_size);
  const double sending = static_cast<double>(sent) / rate, passes = planner.seconds(plan);
  const std::string text =
      concat("on ", ranks, " GPUs each sends ", bytes_string(sent), " for a step: ", two_digits(sending),
             " s at ", bytes_string(static_cast<int64_t>(rate)), "/s, beside some ", two_digits(passes),
             " s of arithmetic (estimated, at 50 TFLOP/s)");
  Finding& finding =
      sending > kMuch * passes
          ? checkup.warning("step on gpus", text,
                            config.lora ? "a larger training.effective_batch_size makes sending weigh less"
                                        : "a larger training.effective_batch_size makes sending weigh less; "
                                          "lora: {} sends only the adapter")
          : checkup.ok("step on gpus", text);
  finding.values = {
      {"gpus", ranks}, {"sent", sent}, {"rate", rate}, {"seconds", sending}, {"passes", passes}};
}

}  // namespace

void check_gpu_links(Checkup& checkup, const GpuSight& sight, const std::optional<Config>& config) {
  const std::vector<Gpu> visible = sight.visible();
  const auto count = static_cast<int64_t>(visible.size());
  double rate = check_gloo(checkup);
  if (count < 2) {
    checkup.ok(kLinks, count == 1 ? "one GPU: there is nothing to connect"
                                  : concat("no GPU to connect: ", sight.why_none));
    return;
  }
  const double slowest = tell_of_pairs(checkup, measure_gpu_links(visible));
  if (check_nccl(checkup)) rate = slowest;
  if (!config || rate == 0) return;
  try {
    translate_torch_errors("", [&] { tell_of_step(checkup, *config, count, rate); });
  } catch (const Error& error) {
    checkup.warning("step on gpus", error.what(), "trainer plan says more");
  }
}

}  // namespace trainer
