// trainer export FROM OUT
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "trainer/base/strings.h"

#include "base/text.h"
#include "cli/commands.h"
#include "cli/open_core.h"
#include "cli/resolve_names.h"
#include "commands/options.h"
#include "config/weight_formats.h"

namespace trainer::cli {
namespace {

// The options about quantised weights that `trainer export` and `trainer merge` share.

// Types of GGUF in which matrices are quantised here.
constexpr std::array<const char*, 2> kGgufTypes{"q4_k_m", "q8_0"};

bool is_gguf_type(const std::string& name) { return std::ranges::find(kGgufTypes, name) != kGgufTypes.end(); }

void add_quantize_options(CLI::App& command, const std::shared_ptr<ExportOptions>& options, bool with_gguf) {
  std::vector<std::string> names, help, titles;
  for (const WeightFormatName& format : weight_format_names()) {
    names.push_back(format.name);
    help.push_back(concat(format.name, ": ", format.written_as));
    titles.push_back(format.title);
  }
  const std::string formats = join(titles, " or ");
  if (with_gguf) {
    names.insert(names.end(), kGgufTypes.begin(), kGgufTypes.end());
    help.push_back("q4_k_m, q8_0: a GGUF in about 4.8 or 8.5 bits a weight, for llama.cpp and Ollama");
  }
  CLI::Option* quantize = command.add_option("--quantize", options->quantize, join(help, "; "))
                              ->type_name("NAME")
                              ->transform(CLI::IsMember(names, CLI::ignore_case));
  command
      .add_flag("!--no-double-quant", options->double_quant,
                concat("With --quantize ", smallest_weight_format().name,
                       ": keep the scales in fp32 instead of 8 bits"))
      ->needs(quantize);
  command
      .add_option(
          "--base", options->base,
          concat(
              "For an adapter: the model whose weights it is merged onto (default: the one that it names). "
              "For the original of a base that is stored in ",
              formats))
      ->type_name("DIR");
  command.add_flag("--dequantized", options->dequantised,
                   concat("For an adapter that was trained on ", formats,
                          " weights: merge onto those, not onto the original ones"));
}

struct ExportWords {
  std::string format;  // empty: by the name of OUT
  std::string max_shard_size;
};

// A type under the name that other programs have for it; for one that only llama.cpp writes, the way there.
std::string check_dtype(std::string& name) {
  std::string lower = lower_case(name);
  if (lower == "f16" || lower == "float16") lower = "fp16";
  if (lower == "f32" || lower == "float32") lower = "fp32";
  if (lower == "bfloat16") lower = "bf16";
  if (lower == "auto" || lower == "bf16" || lower == "fp16" || lower == "fp32" || is_gguf_type(lower)) {
    name = lower;
    return "";
  }
  if (lower.starts_with("q") || lower.starts_with("iq")) {
    std::string upper = lower;
    for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return concat(name,
                  " is written by llama.cpp: export a GGUF file first (trainer export FROM model.gguf), "
                  "then run: llama-quantize model.gguf model-",
                  upper, ".gguf ", upper);
  }
  return concat(name, " is not a type: auto, bf16, fp16, fp32, or q8_0 and q4_k_m for GGUF");
}

// Refuses types that do not go with the kind of file, or with each other.
void check_types(const ExportOptions& options) {
  for (const auto& [option, name] : {std::pair("--dtype", options.dtype), {"--quantize", options.quantize}}) {
    if (is_gguf_type(name) && !options.gguf)
      throw ConfigError(
          concat("export: ", option, " ", name, " is a type of GGUF; give OUT a name that ends in .gguf"));
  }
  if (options.quantize.empty() || !options.gguf) return;
  if (!is_gguf_type(options.quantize))
    throw ConfigError(concat("export: --quantize ", options.quantize,
                             " is no type of GGUF; for a small GGUF give --quantize q4_k_m or q8_0"));
  if (!options.double_quant)
    throw ConfigError(concat("export: --no-double-quant has no meaning for --quantize ", options.quantize));
  if (options.dtype != "auto" && options.dtype != options.quantize)
    throw ConfigError(concat("export: --dtype ", options.dtype, " and --quantize ", options.quantize,
                             " are both the type of a GGUF's matrices; leave out one"));
}

// Fills in what the words mean together.
void resolve_export(ExportOptions& options, const ExportWords& words) {
  require_option(options.source, "export", "FROM (the directory to export)");
  require_option(options.out, "export", "OUT (where to write)");
  const bool names_gguf = options.out.ends_with(".gguf");
  options.gguf = words.format.empty() ? names_gguf : words.format == "gguf";
  if (options.gguf && !names_gguf)
    throw ConfigError(
        concat("export: GGUF is a single file; give a name that ends in .gguf, not ", options.out));
  if (!options.gguf && names_gguf)
    throw ConfigError("export: --format safetensors writes a directory; give a name without .gguf");
  check_types(options);
  if (options.adapter && options.dtype == "q4_k_m")
    throw ConfigError(
        "export: --adapter writes an adapter's small matrices, which Q4_K_M does not hold; leave out "
        "--dtype");
  if (options.adapter && (!options.quantize.empty() || options.dequantised)) {
    throw ConfigError("export: --adapter writes the adapter alone; leave out --quantize and --dequantized");
  }
  if (options.adapter && !words.max_shard_size.empty())
    throw ConfigError("export: an adapter is a single file; leave out --max-shard-size");
  if (words.max_shard_size.empty()) return;
  if (options.gguf) throw ConfigError("export: GGUF is a single file; leave out --max-shard-size");
  const auto bytes = parse_byte_size(words.max_shard_size);
  if (!bytes || *bytes <= 0)
    throw ConfigError(concat("export: --max-shard-size ", words.max_shard_size, ": give a size such as 5GB"));
  options.max_shard_bytes = *bytes;
}

}  // namespace

void add_export(CLI::App& command) {
  auto options = std::make_shared<ExportOptions>();
  auto words = std::make_shared<ExportWords>();
  command
      .add_option("source", options->source,
                  "Output directory of a run, a checkpoint, a model directory or an adapter directory")
      ->type_name("FROM");
  command
      .add_option(
          "out", options->out,
          "What to write: a directory, or a file NAME.gguf. It must not exist yet (an empty directory may)")
      ->type_name("OUT");
  command.add_option("--format", words->format, "safetensors or gguf (default: decided by the name of OUT)")
      ->type_name("NAME")
      ->check(CLI::IsMember({"safetensors", "gguf"}));
  command
      .add_option("--dtype", options->dtype,
                  "Data type of the weights: auto (as stored), bf16, fp16, fp32; for GGUF also q8_0")
      ->capture_default_str()
      ->type_name("NAME")
      ->transform(CLI::Validator(check_dtype, ""));
  command
      .add_option("--max-shard-size", words->max_shard_size, "Maximum size of a weight file (default: 5GB)")
      ->type_name("SIZE");
  command.add_flag(
      "--adapter", options->adapter,
      "Write only the adapter instead of merging it: PEFT files or, if OUT ends in .gguf, one file for "
      "llama.cpp (--lora) and Ollama (ADAPTER)");
  add_quantize_options(command, options, /*with_gguf=*/true);
  command.callback([options, words] {
    resolve_export(*options, *words);
    options->source = resolve_model_name(options->source);
    options->base = resolve_model_name(options->base);
    run_in_library(*options);
  });
}

// trainer merge MODEL_OR_ADAPTER OUT: `trainer export` with nothing but the type and the base to choose
void add_merge(CLI::App& command) {
  auto options = std::make_shared<ExportOptions>();
  command
      .add_option("source", options->source,
                  "Adapter directory (or a model directory, to change its data type)")
      ->type_name("DIR");
  command
      .add_option("out", options->out, "Model directory to write; it must not exist yet, or must be empty")
      ->type_name("DIR");
  command
      .add_option("--dtype", options->dtype,
                  "Data type of the weights: auto (that of the base), bf16, fp16 or fp32")
      ->capture_default_str()
      ->type_name("NAME")
      ->check(CLI::IsMember({"auto", "bf16", "fp16", "fp32"}));
  add_quantize_options(command, options, /*with_gguf=*/false);
  command.callback([options] {
    require_option(options->source, "merge", "DIR (the adapter directory)");
    require_option(options->out, "merge", "OUT (the directory to write)");
    options->source = resolve_model_name(options->source);
    options->base = resolve_model_name(options->base);
    run_in_library(*options);
  });
}

}  // namespace trainer::cli
