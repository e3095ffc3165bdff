// The options of the commands that need LibTorch: the launcher fills them in and hands them to
// trainer_core_run() in libtrainer_core.so. kCommand: the name of the library's part of a command.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/config/config.h"

#include "config/cards.h"

namespace trainer {

// Options of `trainer train`.
struct TrainOptions {
  static constexpr const char* kCommand = "train";
  Config config;  // has passed check_for_training
};

// Options of `trainer generate` and `trainer chat`. Those that are not set come from the model's
// generation_config.json.
struct GenerateOptions {
  static constexpr const char* kCommand = "generate";
  std::string model;                 // a model or adapter directory
  std::string base;                  // of an adapter, in place of the one that it names
  std::vector<std::string> prompts;  // answered on stdout
  std::string input_file;            // or: a file of rows, "-" for JSON lines from stdin
  std::string output_file;           // empty: stdout
  bool chat = false;                 // prompts are a user's messages; without prompts: a conversation
  bool json = false;                 // conversations, or prompts, come and answers go as lines of JSON
  std::string system;                // the message that opens each conversation
  // How the run that the model comes from reads rows; of another model, the defaults.
  DataConfig data;
  bool of_run = false;

  std::optional<int64_t> max_new_tokens, min_new_tokens;
  bool sample = false;
  std::optional<double> temperature, top_p, min_p;
  std::optional<int64_t> top_k;
  int64_t seed = 42;
  std::optional<double> repetition_penalty;
  std::optional<int64_t> no_repeat_ngram_size;
  std::optional<int64_t> num_beams, num_beam_groups, num_return_sequences;
  std::optional<double> length_penalty, diversity_penalty;
  std::string early_stopping;  // true, false or never
  std::vector<std::string> stop;
  std::string forced_first;  // the token that answers begin with; empty: any
  std::string choices_file;  // the only answers, a line each; empty: all are allowed
  bool classify = false;     // what a head that scores texts gives them
  bool scores = false;       // in rows, beside the answers
  bool resume = false;       // output_file has the answers to the first rows
  // Writes what the model thinks of its answers: so many tokens at a place, into this folder; 0: does not.
  int64_t save_logits = 0;
  std::string logits_folder;

  int64_t batch_size = 8;
  std::string device = "auto";
  std::string dtype = "auto";  // auto, bf16, fp32
  bool tf32 = true;            // like training.tf32 in the configuration
  std::string memory_limit;    // like memory.limit in the configuration
  int64_t num_threads = 0;     // 0: OMP_NUM_THREADS, else one per core
};

// Options of `trainer eval`.
struct EvalOptions {
  static constexpr const char* kCommand = "eval";
  Config config;     // model.path: a model or adapter directory; data.eval: the data
  std::string base;  // of an adapter, in place of the one that it names
  bool json = false;
  std::string predictions_file;  // for the answers and their targets; empty: not written
  std::string against;  // a model or adapter directory, or a file of answers to the same rows; empty: none
  // Writes what the model thinks of the data: so many tokens at a place, into this folder; 0: does not.
  int64_t save_logits = 0;
  std::string logits_folder;
};

// Reads rows for a command that needs nothing else of the library.
struct RowsOptions {
  static constexpr const char* kCommand = "rows";
  using Visit = std::function<void(const std::string& json, const std::string& where)>;
  std::string file, cache;  // as for_each_row() in commands/rows.h
  std::string input;        // as data.input: if it is set, the row's `text` is what it gives
  Visit visit;
};

// Options of `trainer export` and `trainer merge`.
struct ExportOptions {
  static constexpr const char* kCommand = "export";
  std::string source;  // an adapter or model directory, a checkpoint, a run's output directory
  std::string out;     // a directory that does not exist, or is empty; for GGUF a file that does not exist
  bool gguf = false;
  std::string dtype = "auto";  // auto, bf16, fp16, fp32; for GGUF also q8_0 and q4_k_m
  int64_t max_shard_bytes = 5'000'000'000;
  bool adapter = false;      // export only the adapter
  std::string base;          // merge onto this model's weights instead of those of the adapter's base
  bool dequantised = false;  // merge onto the base's weights as quantising makes them
  std::string quantize;      // a value of model.quantize; for GGUF q8_0 or q4_k_m; or empty
  bool double_quant = true;
};

// Options of `trainer doctor`.
struct DoctorOptions {
  static constexpr const char* kCommand = "doctor";
  std::optional<Config> config;  // the run to check
  std::string problem;           // or: what is wrong with the configuration
  ExitCode problem_code = ExitCode::usage;
  std::vector<std::pair<std::string, std::string>> environment;  // variables that the user has set
  bool json = false;
  bool gpus = false;  // also how GPUs reach each other
};

// Options of `trainer plan`.
struct PlanOptions {
  static constexpr const char* kCommand = "plan";
  Config config;  // model.path: a directory with a config.json, a file like it, or the name of one that comes
                  // with the program
  bool json = false;
  bool search = false;      // the table of choices
  std::vector<Cards> gpus;  // to show what fits on them
};

// Options of `trainer models`.
struct ModelsOptions {
  static constexpr const char* kCommand = "models";
  std::vector<std::string> names, paths;  // as they were given; where they are
  bool markdown = false;
};

// Options of `trainer data`.
struct DataOptions {
  static constexpr const char* kCommand = "data";
  Config config;  // has passed check_for_training
  bool json = false;
};

// Asks a person and returns the answer, of which `problem_of` says what is wrong, or "". `otherwise`: the
// answer that an empty line gives; "": none.
using Ask = std::function<std::string(const std::string& question, const std::string& otherwise,
                                      const std::function<std::string(const std::string&)>& problem_of)>;

// Options of `trainer init`.
struct InitOptions {
  static constexpr const char* kCommand = "init";
  std::string model, model_path;  // as the file will name it; where it is, as PlanOptions::config.model.path
  std::vector<DataSource> data, data_paths;  // the same for data.train
  std::vector<DataSource> eval;              // files of a folder that are named as such
  std::string kind = "auto", input, target;  // as data.* has them; empty: found from the columns
  std::string card;  // the memory of the GPU, "24GB"; "cpu"; "": is asked, or what this machine has
  std::string method = "auto";  // auto, full, lora, qlora
  std::string out, output_dir;
  bool yes = false;   // guesses are taken
  Ask ask = nullptr;  // nobody can be asked

  // The result: a commented configuration that fits, and what doctor says of it. What it finds wrong is in
  // `problem`, with the exit code.
  std::string yaml, verdict, problem;
  ExitCode problem_code = ExitCode::done;
};

}  // namespace trainer

// Carries out the library's part of a command; the launcher looks the function up by name, hence extern "C".
// `options` points to the command's struct. Returns 0, or 1 if the library has no such command. Throws the
// types of trainer/base/error.h.
extern "C" int trainer_core_run(const char* command, void* options);
