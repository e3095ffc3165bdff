#include "cli/nf4_options.h"

namespace trainer::cli {

void add_nf4_options(CLI::App& command, const std::shared_ptr<ExportOptions>& options) {
  CLI::Option* quantize =
      command
          .add_option("--quantize", options->quantize,
                      "nf4: write the weights of linear layers in 4 bits, for Transformers with bitsandbytes")
          ->type_name("NAME")
          ->check(CLI::IsMember({"nf4"}));
  command
      .add_flag("!--no-double-quant", options->double_quant,
                "With --quantize nf4: keep the scales in fp32 instead of 8 bits")
      ->needs(quantize);
  command
      .add_option(
          "--base", options->base,
          "For an adapter: the model whose weights it is merged onto (default: the one that it names). "
          "For the original of a base that is stored in NF4")
      ->type_name("DIR");
  command.add_flag(
      "--dequantized", options->dequantised,
      "For an adapter that was trained on NF4 weights: merge onto those, not onto the original ones");
}

}  // namespace trainer::cli
