// trainer merge MODEL_OR_ADAPTER OUT: `trainer export` with nothing but the type and the base to choose
#include <memory>
#include <string>

#include "cli/commands.h"
#include "cli/open_core.h"
#include "cli/quantize_options.h"
#include "cli/resolve_names.h"

namespace trainer::cli {

void add_merge_command(CLI::App& app) {
  auto options = std::make_shared<ExportOptions>();
  CLI::App* command =
      app.add_subcommand("merge", "Merge an adapter into its base model, one tensor at a time");
  command
      ->add_option("source", options->source,
                   "Adapter directory (or a model directory, to change its data type)")
      ->type_name("DIR");
  command
      ->add_option("out", options->out, "Model directory to write; it must not exist yet, or must be empty")
      ->type_name("DIR");
  command
      ->add_option("--dtype", options->dtype,
                   "Data type of the weights: auto (that of the base), bf16, fp16 or fp32")
      ->capture_default_str()
      ->type_name("NAME")
      ->check(CLI::IsMember({"auto", "bf16", "fp16", "fp32"}));
  add_quantize_options(*command, options);
  command->callback([options] {
    require_option(options->source, "merge", "DIR (the adapter directory)");
    require_option(options->out, "merge", "OUT (the directory to write)");
    options->source = resolve_model_name(options->source);
    options->base = resolve_model_name(options->base);
    open_core(0).export_model(*options);
  });
}

}  // namespace trainer::cli
