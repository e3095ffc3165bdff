// Opens libtrainer_core.so. The launcher itself links no LibTorch, which would take a fifth of a second even
// to print
// --help, and which it has to find first where it was installed as a package.
#pragma once

#include <cstdint>

#include "commands/entry_points.h"

namespace trainer::cli {

struct Core {
  decltype(&trainer_core_train) train;
  decltype(&trainer_core_generate) generate;
  decltype(&trainer_core_eval) eval;
  decltype(&trainer_core_export) export_model;
  decltype(&trainer_core_doctor) doctor;
  decltype(&trainer_core_plan) plan;
  decltype(&trainer_core_data) data;
  decltype(&trainer_core_init) init;
};

// Sets the environment that must precede LibTorch, where the user has not set it, and opens the library.
// Throws InstallationError if it or LibTorch is not there. num_threads: threads that compute, 0 for the
// library's default. memory: the settings of the GPU's allocator.
Core open_core(int64_t num_threads, const MemoryConfig& memory = {});

// True after open_core: logging then also goes to the run's log file.
bool core_is_open();

}  // namespace trainer::cli
