// trainer doctor: checks whether a run could start on this machine.
#include <iostream>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/memory/device_memory.h"

#include "base/terminal.h"
#include "commands/checkup.h"
#include "commands/library.h"
#include "ops/cpu_products.h"

namespace trainer {
namespace {

void print_checkup(const Checkup& checkup, bool json) {
  if (json) {
    checkup.print_json(std::cout);
  } else {
    const Terminal terminal = stdout_terminal().value_or(Terminal{});
    checkup.print_text(std::cout, terminal.colour, terminal.width);
  }
  std::cout.flush();
}

void run_doctor(const DoctorOptions& options) {
  // The report already contains what loading would log.
  if (!log::is_shown(log::Level::debug)) log::set_level(log::Level::warning);
  const Config config = options.config.value_or(Config{});
  set_up_cpu(config.training.num_threads);
  set_cpu_products(config.training.cpu_products);
  Checkup checkup;
  check_program(checkup);
  check_environment(checkup, options);
  check_processor(checkup, config);
  check_host_memory(checkup);
  const GpuSight sight = system_gpus().look();
  check_gpus(checkup, sight, config);
  if (options.gpus) check_gpu_links(checkup, sight, options.config);
  if (!options.problem.empty()) checkup.failed("configuration", options.problem, options.problem_code);
  if (options.config) check_run(checkup, config);
  print_checkup(checkup, options.json);
  if (checkup.code() != ExitCode::done) throw Error(checkup.code(), checkup.conclusion());
}

const InLibrary doctor_in_library(+[](DoctorOptions& options) { run_doctor(options); });

}  // namespace
}  // namespace trainer
