// The functions that the launcher calls in libtrainer_core.so, the library that links LibTorch. It opens the
// library and looks them up by name, hence extern "C". All throw the types of trainer/base/error.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/config/config.h"

#include "config/cards.h"

namespace trainer {

// Options of `trainer generate`. Those that are not set come from the model's generation_config.json.
struct GenerateOptions {
  std::string model;                 // a model or adapter directory
  std::vector<std::string> prompts;  // answered on stdout
  std::string input_file;            // or: a file with rows of JSON, "-" for stdin
  std::string output_file;           // empty: stdout
  bool chat = false;                 // prompts are a user's messages; without prompts: a conversation
  std::string system;                // the message that opens each conversation

  std::optional<int64_t> max_new_tokens, min_new_tokens;
  bool sample = false;
  std::optional<double> temperature, top_p, min_p;
  std::optional<int64_t> top_k;
  int64_t seed = 42;
  std::optional<double> repetition_penalty;
  std::optional<int64_t> no_repeat_ngram_size;
  std::optional<int64_t> num_beams, num_return_sequences;
  std::optional<double> length_penalty;
  std::string early_stopping;  // true, false or never
  std::vector<std::string> stop;

  int64_t batch_size = 8;
  std::string device = "auto";
  std::string dtype = "auto";  // auto, bf16, fp32
  bool tf32 = true;            // like training.tf32 in the configuration
  std::string memory_limit;    // like memory.limit in the configuration
  int64_t num_threads = 0;     // 0: OMP_NUM_THREADS, else one per core
};

// Options of `trainer eval`.
struct EvalOptions {
  Config config;  // model.path: a model or adapter directory; data.eval: the data
  bool json = false;
  std::string predictions_file;  // for the answers and their targets; empty: not written
};

// Options of `trainer export` and `trainer merge`.
struct ExportOptions {
  std::string source;  // an adapter or model directory, a checkpoint, a run's output directory
  std::string out;     // a directory that does not exist, or is empty; for GGUF a file that does not exist
  bool gguf = false;
  std::string dtype = "auto";  // auto, bf16, fp16, fp32; for GGUF also q8_0
  int64_t max_shard_bytes = 5'000'000'000;
  bool adapter = false;      // export only the adapter
  std::string base;          // merge onto this model's weights instead of those of the adapter's base
  bool dequantised = false;  // merge onto the base's weights as quantising makes them
  std::string quantize;      // a value of model.quantize, or empty
  bool double_quant = true;
};

// Options of `trainer doctor`.
struct DoctorOptions {
  std::optional<Config> config;  // of the run to check
  std::string problem;           // or: what is wrong with the configuration
  ExitCode problem_code = ExitCode::usage;
  std::vector<std::pair<std::string, std::string>> environment;  // variables that the user has set
  bool json = false;
  bool gpus = false;  // also how GPUs reach each other
};

// Options of `trainer plan`.
struct PlanOptions {
  Config config;  // model.path: a directory with a config.json, a file like it, or the name of one that comes
                  // with the program
  bool json = false;
  bool search = false;      // the table of choices
  std::vector<Cards> gpus;  // to show what fits on them
};

// Options of `trainer data`.
struct DataOptions {
  Config config;
  bool json = false;
};

// Options of `trainer init`.
struct InitOptions {
  std::string model, model_path;  // as the file will name it; where it is, as PlanOptions::config.model.path
  std::vector<DataSource> data, data_paths;  // the same for data.train
  int64_t card = 0;                          // bytes of the GPU's memory; 0: the CPU
  std::string method = "auto";               // auto, full, lora, qlora
  std::string output_dir;
};

}  // namespace trainer

// Trains as configured. The configuration has passed check_for_training.
extern "C" void trainer_core_train(const trainer::Config& config);

extern "C" void trainer_core_generate(const trainer::GenerateOptions& options);

extern "C" void trainer_core_eval(const trainer::EvalOptions& options);

extern "C" void trainer_core_export(const trainer::ExportOptions& options);

// Prints the report. Throws Error with the exit code of the first failure.
extern "C" void trainer_core_doctor(const trainer::DoctorOptions& options);

// The configuration has passed check_for_training. Prints the report, then throws DataError if the data
// exceed a limit.
extern "C" void trainer_core_data(const trainer::DataOptions& options);

// Throws OutOfMemoryError if the plan exceeds the limit.
extern "C" void trainer_core_plan(const trainer::PlanOptions& options);

// Returns a commented configuration that fits. Throws OutOfMemoryError if nothing does.
extern "C" void trainer_core_init(const trainer::InitOptions& options, std::string& yaml);
