#include "cli/quantize_options.h"

#include <string>
#include <vector>

#include "trainer/base/strings.h"

#include "config/weight_formats.h"

namespace trainer::cli {

void add_quantize_options(CLI::App& command, const std::shared_ptr<ExportOptions>& options) {
  std::vector<std::string> names, help, titles;
  for (const WeightFormatName& format : weight_format_names()) {
    names.push_back(format.name);
    help.push_back(concat(format.name, ": ", format.written_as));
    titles.push_back(format.title);
  }
  const std::string formats = join(titles, " or ");
  CLI::Option* quantize = command.add_option("--quantize", options->quantize, join(help, "; "))
                              ->type_name("NAME")
                              ->check(CLI::IsMember(names));
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

}  // namespace trainer::cli
