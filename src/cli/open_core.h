// Opens libtrainer_core.so. The launcher itself links no LibTorch, which would take a fifth of a second even
// to print --help, and which it has to find first where it was installed as a package.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "commands/options.h"

namespace trainer::cli {

// Opens the library and runs its part of a command on `options`, the struct whose name this is. Before, sets
// the environment that must precede LibTorch, where the user has not set it. num_threads: threads that
// compute, 0 for the library's default. memory: the settings of the GPU's allocator. Throws InstallationError
// if the library or LibTorch is not there.
void run_in_library(const char* command, void* options, int64_t num_threads, const MemoryConfig& memory);

// The same; returns the options, for those that hold a result.
template <class Options>
Options run_in_library(Options options, int64_t num_threads = 0, const MemoryConfig& memory = {}) {
  run_in_library(Options::kCommand, &options, num_threads, memory);
  return options;
}

// True once the library is open: logging then also goes to the run's log file.
bool core_is_open();

// Opens another library of the program, and returns a function of it. advice: what helps where it cannot be
// opened. Throws InstallationError.
void* function_of_library(const std::string& library, const char* function, const std::string& advice);

// The program's own files or LibTorch are not there, or do not belong together.
struct InstallationError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace trainer::cli
