#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <optional>
#include <unistd.h>

#include "trainer/base/strings.h"
#include "trainer/config/load.h"
#include "trainer/data/dataset.h"
#include "trainer/device/acquire_device.h"
#include "trainer/device/device.h"
#include "trainer/device/gpu_probe.h"
#include "trainer/memory/limit.h"
#include "trainer/memory/summary.h"
#include "trainer/text/tokenizer.h"

#include "base/file_facts.h"
#include "commands/checkup.h"
#include "data/data_files.h"
#include "memory/offload.h"
#include "memory/set_up_device.h"
#include "notify/reporters.h"
#include "run/end_of_run.h"
#include "run/output_directory.h"
#include "run/run_model.h"
#include "run/run_plan.h"
#include "run/save_result.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;

// Data up to this size are read completely, in a few seconds.
constexpr uintmax_t kReadInFull = 16'000'000;

std::string seconds_text(double seconds) {
  return seconds < 10 ? concat(std::round(seconds * 10) / 10, " s") : duration_string(seconds);
}

// Returns the line of the report under which a problem of this key is shown.
std::string subject_of(const std::string& key) {
  if (key.starts_with("model.") || key.starts_with("lora.")) return "model";
  if (key.starts_with("data.")) return "data";
  return key == "output_dir" ? "output" : "configuration";
}

class RunCheckup {
 public:
  RunCheckup(Checkup& checkup, const Config& config) : checkup_(checkup), config_(config) {}

  void go() {
    check_files();
    check_output();
    if (!stands("configuration")) return;
    check_reporters();
    check_device();
    if (lease_ && stands("model")) attempt("model", [&] { load_model(); });
    if (stands("data")) attempt("data", [&] { check_data(); });
    if (prepared_) attempt("memory", [&] { check_memory(); });
    attempt("disk", [&] { check_disk(); });
  }

 private:
  // Runs one check; an exception is reported as its failure.
  template <class Check>
  void attempt(const std::string& name, const Check& check) {
    try {
      translate_torch_errors(
          "A larger memory.limit helps, if the device has it, lora: {}, model.dtype: bf16, or another "
          "device.",
          check);
    } catch (const Error& error) {
      checkup_.failed(name, error);
    }
  }

  // Returns whether nothing of this name has failed so far.
  bool stands(const std::string& name) const {
    return std::ranges::none_of(checkup_.findings(), [&](const Finding& finding) {
      return finding.name == name && finding.verdict == Verdict::failed;
    });
  }

  void check_files() {
    for (const TrainingProblem& problem : problems_for_training(config_))
      checkup_.failed(subject_of(problem.key), problem.text, problem.code);
    if (stands("configuration")) checkup_.ok("configuration", concat(config_.origins.size(), " keys set"));
    for (const IdleKey& key : keys_without_effect(config_)) {
      if (!key.overridden) checkup_.warning("configuration", key.text, "");
    }
  }

  void check_output() {
    if (!stands("output")) return;
    attempt("output", [&] {
      OutputDirectory::open(config_);  // it removes what it creates, because no run begins
      checkup_.ok("output", config_.output_dir);
    });
  }

  void check_reporters() {
    for (const std::string& service : config_.observe.report_to) {
      const std::string install = how_to_install_reporter(service);
      if (install.empty()) {
        checkup_.ok("report to", service);
      } else {
        checkup_.warning("report to", concat(service, " is not installed: it would get no metrics"), install);
      }
    }
  }

  void check_device() {
    GpuConfig now = config_.gpu;
    now.wait_for_gpu = false;
    try {
      lease_ = acquire_device(config_.device, now);
      set_up_device(lease_->device, config_.memory.limit, config_.training.tf32);
      checkup_.ok("device", describe_device(lease_->device));
    } catch (const DeviceError& error) {
      if (config_.gpu.wait_for_gpu) {
        checkup_.warning("device", error.what(),
                         concat("the run would wait for up to ",
                                duration_string(config_.gpu.gpu_wait_timeout_minutes * 60)));
      } else {
        checkup_.failed("device", error);
      }
    }
  }

  void load_model() {
    const auto begin = std::chrono::steady_clock::now();
    tokenizer_ = load_run_tokenizer(config_);
    prepared_ = prepare_model(config_, *tokenizer_, lease_->device);
    check_vocabulary(*tokenizer_, *prepared_->model, config_.model.path);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    int64_t parameters = 0, trained = 0;
    prepared_->model->for_each_parameter([&](const std::string&, const Parameter& parameter) {
      parameters += parameter.numel();
      if (parameter.trained()) trained += parameter.numel();
    });
    SavedWeights saved = prepared_->artefacts.weights(*prepared_->model);
    weights_bytes_ = saved.bytes();
    choose_result_types(saved, prepared_->artefacts, config_.save.result_dtype);
    result_bytes_ = saved.bytes();
    const MemorySummary memory = memory_summary(lease_->device);
    Finding& finding =
        checkup_.ok("model", concat(prepared_->model->model_type(), ", ", grouped(parameters),
                                    " parameters, ", grouped(trained), " of them trained; loaded in ",
                                    seconds_text(seconds.count()), "; ", memory.text()));
    finding.values = {{"parameters", parameters},
                      {"trained", trained},
                      {"seconds", seconds.count()},
                      {"memory_allocated", memory.allocated},
                      {"memory_resident", memory.resident}};
  }

  void check_data() {
    uintmax_t bytes = 0;
    for (const auto* sources : {&config_.data.train, &config_.data.eval.sources}) {
      for (const DataSource& source : *sources)
        for (const fs::path& file : data_files(source)) bytes += fs::file_size(file);
    }
    if (!prepared_ || bytes > kReadInFull) {
      checkup_.ok("data",
                  concat(bytes_string(static_cast<int64_t>(bytes)), "; its rows are read at the start"));
      return;
    }
    const bool encoder_decoder = prepared_->model->encoder_decoder();
    const Dataset train = Dataset::open_train(config_, *tokenizer_, encoder_decoder);
    lengths_ = sample_lengths(train, lease_->device.type());
    RunDataReport report;
    report.train = train.report();
    if (!config_.data.eval.empty())
      report.eval = Dataset::open_eval(config_, *tokenizer_, encoder_decoder).report();
    check_limits(report, config_.data);
    tell_of(report.train);
    if (report.eval) tell_of(*report.eval);
  }

  void tell_of(const DataReport& data) {
    const std::vector<std::string> lines = data.lines();
    const std::string text = concat(data.name, ": ", join(lines, "\n"));
    const bool warns =
        std::ranges::any_of(lines, [](const std::string& line) { return line.starts_with("warning"); });
    warns ? checkup_.warning("data", text, "") : checkup_.ok("data", text);
  }

  // Compares the plan with the available memory. Smaller micro-batches cannot save a run whose weights,
  // gradients and optimizer state do not fit.
  void check_memory() {
    const at::Device device = lease_->device;
    PlanTarget target{device.type(), prepared_->model->dtype(), tokenizer_->vocab_size(), lengths_};
    if (device.is_cuda()) target.ranks = config_.parallel.gpus.of(std::ssize(system_gpus().look().visible()));
    const RunPlan planned = plan_run(config_, target, device, memory_for_run(device));
    if (!planned.known()) return;
    const MemoryPlan& plan = planned.plan;
    optimizer_bytes_ = plan.optimizer_state + plan.offloaded.optimizer_state;
    const int64_t available =
        planned.limit > 0 ? planned.limit : memory_summary(device).allocated + free_memory(device);
    const int64_t stays = plan.weights + plan.adapters + plan.gradients + plan.optimizer_state;
    const std::string text = concat(bytes_string(plan.total()), " planned at the peak, of ",
                                    bytes_string(available), planned.limit > 0 ? " allowed" : " free");
    Finding& finding =
        stays > available
            ? checkup_.failed("memory", concat(text, "; what stays in memory takes ", bytes_string(stays)),
                              ExitCode::out_of_memory,
                              "lora: {}, or another device; trainer plan shows the parts")
        : plan.total() > available
            ? checkup_.warning(
                  "memory", text,
                  "steps will be split into smaller micro-batches when memory runs out; a smaller "
                  "training.batch_size or memory.gradient_checkpointing: true avoids the failed attempts")
            : checkup_.ok("memory", text);
    finding.values = {{"planned", plan.total()}, {"available", available}};
    if (plan.offloaded.total() > 0) check_offload(planned, target.ranks);
  }

  // Compares what is offloaded with the room for it, for all processes of this machine.
  void check_offload(const RunPlan& planned, int64_t processes) {
    const at::Device device = lease_->device;
    const std::string& directory = planned.config.offload_directory();
    const fs::path existing = existing_part(directory);
    if (!device.is_cuda() && !(fs::is_directory(existing) && ::access(existing.c_str(), W_OK | X_OK) == 0)) {
      checkup_.failed("offload", concat(existing.string(), ": is not a directory in which files can be made"),
                      ExitCode::usage, "choose another memory.offload_dir");
      return;
    }
    const int64_t needed = processes * planned.plan.offloaded.total(), room = room_below(device, directory);
    const std::string where = device.is_cuda() ? "the host's memory" : directory;
    const std::string of_all = processes > 1 ? concat(" on each of ", processes, " GPUs") : "";
    const std::string text =
        concat(planned.offloaded_text(), of_all, "; ", bytes_string(room), " free in ", where);
    Finding& finding =
        needed > room ? checkup_.failed("offload", text, ExitCode::out_of_memory,
                                        device.is_cuda() ? "offload less, or use a machine with more memory"
                                                         : "make room, or choose another memory.offload_dir")
        : !device.is_cuda() && lies_in_memory(existing)
            ? checkup_.warning("offload", concat(text, ", which lies in memory (tmpfs)"),
                               "choose a memory.offload_dir on a disk")
            : checkup_.ok("offload", text);
    finding.values = {{"needed", needed}, {"free", room}};
    if (!device.is_cuda() && share_a_disk(existing, existing_part(config_.output_dir)))
      offloaded_beside_output_ = needed;
  }

  void check_disk() {
    const int64_t free =
        std::max<int64_t>(0, free_space(existing_part(config_.output_dir)) - offloaded_beside_output_);
    const std::string text =
        concat(bytes_string(free), " free for ", config_.output_dir,
               offloaded_beside_output_ > 0
                   ? concat(", without the ", bytes_string(offloaded_beside_output_), " offloaded there")
                   : "");
    if (!result_bytes_) {
      checkup_.ok("disk", text);
      return;
    }
    const bool only_result = config_.save.strategy == IntervalStrategy::no;
    const int64_t result = *result_bytes_, kept = config_.save.total_limit,
                  each =
                      only_result ? 0 : weights_bytes_ + (config_.save.weights_only ? 0 : optimizer_bytes_);
    // An old checkpoint is removed only after the new one is written.
    const int64_t stays = result + (kept > 0 ? kept + 1 : 1) * each;
    const std::string needed =
        concat(text, "; the result takes ", bytes_string(result),
               only_result ? ""
                           : concat(", each checkpoint ", bytes_string(each),
                                    kept > 0 ? concat(", and ", kept, " are kept") : ", and all are kept"));
    Finding& finding =
        free < result + each
            ? checkup_.failed("disk", needed, ExitCode::files, "make room, or choose another output_dir")
        : free < stays ? checkup_.warning("disk", needed, "save.total_limit keeps fewer checkpoints")
        : kept == 0 && !only_result && free < 10 * each
            ? checkup_.warning("disk", needed,
                               concat("no room for more than ", (free - result) / each,
                                      " checkpoints; save.total_limit=2 keeps two"))
            : checkup_.ok("disk", needed);
    finding.values = {{"free", free}, {"checkpoint", std::max(each, result)}};
  }

  Checkup& checkup_;
  const Config& config_;
  std::optional<DeviceLease> lease_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<Prepared> prepared_;
  std::optional<int64_t> result_bytes_;
  int64_t weights_bytes_ = 0;  // in a checkpoint
  int64_t optimizer_bytes_ = 0;
  int64_t offloaded_beside_output_ = 0;  // on the disk of output_dir
  SampleLengths lengths_;
};

}  // namespace

void check_run(Checkup& checkup, const Config& config) { RunCheckup(checkup, config).go(); }

}  // namespace trainer
