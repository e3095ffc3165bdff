// The findings of `trainer doctor`: one line each, with a verdict and advice.
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/config/config.h"
#include "trainer/device/gpu_probe.h"

#include "commands/options.h"

namespace trainer {

enum class Verdict { ok, warning, failed };

struct Finding {
  std::string name;  // "gpu", "data"
  Verdict verdict = Verdict::ok;
  std::string text;
  std::string advice;                  // how to mend it; for warnings and failures
  ExitCode code = ExitCode::done;      // for a failure: what the run would end with
  nlohmann::ordered_json values = {};  // for --json
};

class Checkup {
 public:
  Finding& ok(const std::string& name, const std::string& text);
  Finding& warning(const std::string& name, const std::string& text, const std::string& advice);
  Finding& failed(const std::string& name, const std::string& text, ExitCode code,
                  const std::string& advice = "");
  // Adds a failure with the code and text of the error; the lines after the first are the advice.
  Finding& failed(const std::string& name, const Error& error);

  const std::vector<Finding>& findings() const { return findings_; }
  // Returns the code of the first failure; done if there is none.
  ExitCode code() const;
  std::string conclusion() const;  // "ready: 9 ok, 1 warning"

  // Prints a line each. colour: for a terminal. Lines are wrapped at its width; 0: not wrapped.
  void print_text(std::ostream& out, bool colour, size_t width) const;
  void print_json(std::ostream& out) const;

 private:
  Finding& add(Finding finding);
  std::vector<Finding> findings_;
};

// The checks of `trainer doctor` without a model: the program, the processor, memory, GPUs, the environment.

void check_program(Checkup& checkup);
void check_processor(Checkup& checkup, const Config& config);
void check_host_memory(Checkup& checkup);
void check_gpus(Checkup& checkup, const GpuSight& sight, const Config& config);
// Variables that the user has set.
void check_environment(Checkup& checkup, const DoctorOptions& options);

// The checks of `trainer doctor --gpus`: the connections between GPUs, and between processes.

// With the configuration of a run, also says what the connections mean for one of its steps.
void check_gpu_links(Checkup& checkup, const GpuSight& sight, const std::optional<Config>& config);

// The checks of `trainer doctor --config` for a run: its files exist, its model loads, and the disk has room
// for its results.

// Takes the device and loads the model as the run would, and trains nothing. Leaves no file behind.
void check_run(Checkup& checkup, const Config& config);

}  // namespace trainer
