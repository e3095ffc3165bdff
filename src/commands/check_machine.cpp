#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>
#include <thread>

#include <ATen/Parallel.h>
#include <torch/version.h>

#include "trainer/base/strings.h"
#include "trainer/base/version.h"
#include "trainer/device/device.h"
#include "trainer/memory/device_memory.h"
#include "trainer/memory/limit.h"

#include "commands/checkup.h"
#include "config/cards.h"
#include "ops/cpu_products.h"

namespace trainer {
namespace {

// The value of the first line "name  : value" of /proc/cpuinfo.
std::string processor_info(const std::string& name) {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(": ");
    if (colon != std::string::npos && line.starts_with(name)) return line.substr(colon + 2);
  }
  return "";
}

// Instruction sets that make the kernels of LibTorch and of this program faster.
std::vector<std::string> instruction_sets() {
  std::istringstream flags(processor_info("flags"));
  std::vector<std::string> found;
  for (std::string flag; flags >> flag;) {
    static constexpr std::array wanted{"avx2", "fma", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16"};
    if (std::ranges::find(wanted, flag) != wanted.end()) found.push_back(flag);
  }
  return found;
}

// Returns how many processors a container may use; 0: all. "200000 100000" means two.
int64_t cpu_quota() {
  std::ifstream in("/sys/fs/cgroup/cpu.max");
  double quota = 0, period = 0;
  return in >> quota >> period && period > 0 ? std::max<int64_t>(1, static_cast<int64_t>(quota / period)) : 0;
}

std::string value_of(const DoctorOptions& options, const std::string& name) {
  for (const auto& [variable, value] : options.environment) {
    if (variable == name) return value;
  }
  return "";
}

// Variables that make a run slower, or change what it does.
struct Suspicious {
  const char *name, *effect;
};
constexpr Suspicious kSuspicious[] = {
    {"CUDA_LAUNCH_BLOCKING", "the program waits for every GPU kernel"},
    {"CUBLAS_WORKSPACE_CONFIG",
     "LibTorch parses it anew for every product on a GPU, which takes up to 40 us"},
    {"PYTORCH_NO_CUDA_MEMORY_CACHING",
     "the driver allocates every GPU tensor, and memory.limit does not hold"},
    {"ATEN_CPU_CAPABILITY", "LibTorch may leave instruction sets of the processor unused"},
    {"ONEDNN_MAX_CPU_ISA", "oneDNN may leave instruction sets of the processor unused"},
};

}  // namespace

void check_program(Checkup& checkup) {
  Finding& finding = checkup.ok("program", concat("trainer ", kVersion, ", LibTorch ", TORCH_VERSION));
  finding.values = {{"trainer", kVersion}, {"libtorch", TORCH_VERSION}};
}

void check_processor(Checkup& checkup, const Config& config) {
  const std::vector<std::string> sets = instruction_sets();
  const std::string name = processor_info("model name");
  const std::string text =
      concat(name.empty() ? "unknown" : name, "; ", sets.empty() ? "no AVX2" : join(sets, " "),
             "; matmul: ", describe_cpu_products());
  const bool fast = std::ranges::find(sets, "avx2") != sets.end();
  Finding& finding = fast
                         ? checkup.ok("processor", text)
                         : checkup.warning("processor", text, "training on this CPU will be slow; use a GPU");
  finding.values = {{"instruction_sets", sets}};

  const auto cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  const int64_t quota = cpu_quota(), usable = quota > 0 ? std::min(quota, cores) : cores;
  const int64_t threads = at::get_num_threads();  // as set_up_cpu() left it
  const std::string threads_text = concat(threads, " that compute, ", config.training.num_workers,
                                          " that read data, on ", usable, " processors");
  Finding& counted =
      threads <= usable
          ? checkup.ok("threads", threads_text)
          : checkup.warning(
                "threads", threads_text,
                concat("more threads than processors slow each other down: training.num_threads=", usable));
  counted.values = {{"threads", threads}, {"workers", config.training.num_workers}, {"processors", usable}};
}

void check_host_memory(Checkup& checkup) {
  const int64_t free = free_memory(c10::kCPU);
  Finding& finding = checkup.ok("host memory", bytes_string(free) + " free");
  finding.values = {{"free", free}};
}

void check_gpus(Checkup& checkup, const GpuSight& sight, const Config& config) {
  const std::vector<Gpu> visible = sight.visible();
  if (visible.empty()) {
    if (sight.fails) {
      checkup.warning("gpu", sight.why_none, "until this is fixed, device: auto is the CPU");
    } else {
      checkup.ok("gpu", concat("none: ", sight.why_none));
    }
  } else {
    const std::string versions = concat("driver ", sight.driver.empty() ? "of unknown version" : sight.driver,
                                        ", CUDA up to ", sight.cuda);
    const std::string& why_not = open_cuda();
    Finding& finding = why_not.empty() ? checkup.ok("cuda", versions)
                                       : checkup.warning("cuda", concat(versions, "; ", why_not),
                                                         "until this is fixed, device: auto is the CPU");
    finding.values = {{"driver", sight.driver}, {"cuda", sight.cuda}};
    if (why_not.empty()) checkup.ok("kernels", "NVRTC compiles this program's own GPU kernels");
  }
  const int64_t needed = config.gpu.min_gpu_memory_mb * 1'000'000;
  for (const Gpu& gpu : sight.gpus) {
    const bool hidden = gpu.index < 0, short_of = gpu.free<needed, old = gpu.major> 0 && gpu.major < 8;
    Finding& finding =
        hidden ? checkup.ok("gpu", gpu.text())
        : !gpu.problem.empty()
            ? checkup.warning("gpu", gpu.text(), "nvidia-smi may say more; a broken GPU needs a reset")
        : short_of ? checkup.warning("gpu", gpu.text(),
                                     concat("less free than gpu.min_gpu_memory_mb, ", bytes_string(needed)))
        : old ? checkup.warning("gpu", concat(gpu.text(), "; compute capability ", gpu.major, ".", gpu.minor),
                                "it does not compute in bf16: model.dtype is fp32 there")
              : checkup.ok("gpu", gpu.text());
    finding.values = {{"uuid", gpu.uuid}, {"index", gpu.index}, {"free", gpu.free}, {"total", gpu.total}};
    for (const GpuProcess& process : gpu.processes) {
      finding.values["processes"].push_back(
          {{"pid", process.pid}, {"name", process.name}, {"user", process.user}});
      if (process.bytes) finding.values["processes"].back()["bytes"] = *process.bytes;
    }
  }
}

void check_environment(Checkup& checkup, const DoctorOptions& options) {
  std::vector<std::string> texts;
  nlohmann::ordered_json values = nlohmann::ordered_json::object();
  for (const auto& [name, value] : options.environment) {
    texts.push_back(concat(name, "=", value));
    values[name] = value;
  }
  checkup.ok("environment", texts.empty() ? "nothing set that matters" : join(texts)).values = {
      {"variables", values}};
  for (const auto& [name, effect] : kSuspicious) {
    if (!value_of(options, name).empty())
      checkup.warning("environment", concat(name, ": ", effect), concat("unset ", name));
  }
  const int64_t threads = options.config ? options.config->training.num_threads : 0;
  if (const std::string value = value_of(options, "OMP_NUM_THREADS"); !value.empty() && threads > 0) {
    checkup.warning("environment",
                    concat("OMP_NUM_THREADS=", value, " does not count: training.num_threads is ", threads),
                    "set one of them");
  }
  const std::string first = value_of(options, "PYTORCH_ALLOC_CONF");
  const std::string given = first.empty() ? value_of(options, "PYTORCH_CUDA_ALLOC_CONF") : first;
  const std::string configured = options.config ? allocator_settings(options.config->memory) : given;
  if (!given.empty() && given != configured) {
    checkup.warning(
        "allocator", concat("of the environment, ", given, "; of the configuration, ", configured),
        "the environment counts; unset PYTORCH_ALLOC_CONF and PYTORCH_CUDA_ALLOC_CONF for the other");
  }
}

}  // namespace trainer
