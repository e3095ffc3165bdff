// trainer export FROM OUT
#include <memory>
#include <string>

#include "trainer/base/byte_size.h"
#include "trainer/base/strings.h"

#include "cli/commands.h"
#include "cli/open_core.h"

namespace trainer::cli {
namespace {

struct ExportWords {
  std::string format;  // empty: by the name of OUT
  std::string max_shard_size;
};

// Fills in what the words mean together.
void resolve_export(ExportOptions& options, const ExportWords& words) {
  require_option(options.source, "export", "what to export (a directory)");
  require_option(options.out, "export", "where to write to");
  const bool names_gguf = options.out.ends_with(".gguf");
  options.gguf = words.format.empty() ? names_gguf : words.format == "gguf";
  if (options.gguf && !names_gguf)
    throw ConfigError(
        concat("export: a GGUF is one file; give a name that ends in .gguf, not ", options.out));
  if (!options.gguf && names_gguf)
    throw ConfigError("export: --format safetensors writes a directory; give a name without .gguf");
  if (options.dtype == "q8_0" && !options.gguf)
    throw ConfigError("export: --dtype q8_0 is a type of GGUF; give OUT a name that ends in .gguf");
  if (options.gguf && options.adapter)
    throw ConfigError("export: --adapter writes PEFT's files; GGUF gets the merged model");
  if (options.adapter && !words.max_shard_size.empty())
    throw ConfigError("export: an adapter is one file; leave out --max-shard-size");
  if (words.max_shard_size.empty()) return;
  if (options.gguf) throw ConfigError("export: a GGUF is one file; leave out --max-shard-size");
  const auto bytes = parse_byte_size(words.max_shard_size);
  if (!bytes || *bytes <= 0)
    throw ConfigError(concat("export: --max-shard-size ", words.max_shard_size, ": give a size such as 5GB"));
  options.max_shard_bytes = *bytes;
}

}  // namespace

void add_export_command(CLI::App& app) {
  auto options = std::make_shared<ExportOptions>();
  auto words = std::make_shared<ExportWords>();
  CLI::App* command = app.add_subcommand(
      "export", "Write a model for others: safetensors or GGUF, merged, checked by reading it again");
  command
      ->add_option("source", options->source,
                   "A run's output directory, a checkpoint, a model's or an adapter's directory")
      ->type_name("FROM");
  command
      ->add_option(
          "out", options->out,
          "What to write: a directory, or a file NAME.gguf; it must not exist (a directory may be empty)")
      ->type_name("OUT");
  command->add_option("--format", words->format, "safetensors or gguf (default: by the name of OUT)")
      ->type_name("NAME")
      ->check(CLI::IsMember({"safetensors", "gguf"}));
  command
      ->add_option("--dtype", options->dtype,
                   "Type of the weights: auto (as stored), bf16, fp16, fp32; in a GGUF also q8_0")
      ->capture_default_str()
      ->type_name("NAME")
      ->check(CLI::IsMember({"auto", "bf16", "fp16", "fp32", "q8_0"}));
  command->add_option("--max-shard-size", words->max_shard_size, "Largest file of weights (default: 5GB)")
      ->type_name("SIZE");
  command->add_flag("--adapter", options->adapter,
                    "The adapter alone, in PEFT's files, instead of merging it");
  command->callback([options, words] {
    resolve_export(*options, *words);
    open_core(0).export_model(*options);
  });
}

}  // namespace trainer::cli
