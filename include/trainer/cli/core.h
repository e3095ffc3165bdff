// What the launcher calls in libtrainer_core.so, the library that links LibTorch. They are found by name
// after the library was opened, hence extern "C". All throw the types of trainer/base/error.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/config/config.h"

namespace trainer {

// What `trainer generate` was asked for.
struct GenerateOptions {
  std::string model;                 // a model or adapter directory
  std::vector<std::string> prompts;  // answered on stdout
  std::string input_file;            // or: rows of JSON, "-" for stdin
  std::string output_file;           // empty: stdout
  int64_t max_new_tokens = 256;
  int64_t batch_size = 8;
  std::string device = "auto";
  std::string dtype = "auto";  // auto, bf16, fp32
  int64_t num_threads = 0;     // 0: one per core
};

}  // namespace trainer

// Trains as configured. The configuration has passed check_for_training.
extern "C" void trainer_core_train(const trainer::Config& config);

extern "C" void trainer_core_generate(const trainer::GenerateOptions& options);
