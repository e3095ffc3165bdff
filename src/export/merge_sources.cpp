#include "export/merge_sources.h"

#include "trainer/adapters/lora.h"
#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"
#include "trainer/formats/peft.h"

#include "weights/weight_format.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;

// Returns the name of the format that the model is stored in; "": in none.
std::string stored_in(const fs::path& model) {
  try {
    const auto stored = read_quantization_config(read_model_config(model));
    return stored ? stored->format->name().title : "";
  } catch (const FormatError& error) {
    const std::string where = (model / "").string(), what = error.what();
    throw FormatError(what.starts_with(where) ? what : where + what);
  }
}

std::string title_of(const Quantisation& quantisation) {
  return weight_format(quantisation.format).name().title;
}

MergeSources for_model(const ExportRequest& request, const fs::path& source) {
  if (!request.base.empty() || request.dequantised) {
    throw ConfigError(concat(source.string(), ": is a model, not an adapter; leave out ",
                             request.base.empty() ? "--dequantized" : "--base"));
  }
  if (const std::string format = stored_in(source); !format.empty()) {
    if (request.quantise)
      throw ConfigError(concat(source.string(), ": is stored in ", format, " already; leave out --quantize"));
    log::info(concat(source.string(), ": is stored in ", format, "; its weights are written dequantised"));
  }
  MergeSources out;
  out.merged = {source};
  return out;
}

MergeSources with_other_base(const ExportRequest& request, const fs::path& source,
                             const std::optional<Quantisation>& in_training) {
  MergeSources out;
  out.options.base = request.base;
  out.merged = {request.base, source};
  if (const std::string format = stored_in(request.base); !format.empty()) {
    throw ConfigError(concat("--base ", request.base.string(), ": is stored in ", format,
                             "; give the model with its original weights"));
  }
  const fs::path named = read_adapter_config(source).base_model_name_or_path;
  if (in_training) {
    out.trained = {request.base, source, in_training};
    out.trained_in = title_of(*in_training);
  } else if (fs::exists(named) || fs::exists(source / named)) {
    const fs::path own = base_directory(source);
    out.trained_in = stored_in(own);
    if (!out.trained_in.empty()) out.trained = {own, source};
  }
  return out;
}

}  // namespace

MergeSources find_merge_sources(const ExportRequest& request, const fs::path& source) {
  if (!is_adapter_directory(source)) return for_model(request, source);
  if (!request.base.empty() && request.dequantised)
    throw ConfigError("--base gives the original weights, and --dequantized asks for others; leave out one");
  const std::optional<Quantisation> in_training = quantisation_in_training(source);
  if (!request.base.empty()) return with_other_base(request, source, in_training);
  MergeSources out;
  const fs::path base = base_directory(source);
  out.merged = {base, source};
  out.trained_in = stored_in(base);
  if (!out.trained_in.empty()) {
    log::info(concat(base.string(), ": is stored in ", out.trained_in,
                     "; the adapter is merged onto the dequantised weights. ",
                     "If you have the original ones, --base DIR merges onto those"));
    out.trained = out.merged;
    out.trained_is_merged = true;
  } else if (request.dequantised) {
    const Quantisation usual{.keep_dense = read_adapter_config(source).modules_to_save};
    out.options.through = out.merged.quantise = in_training.value_or(usual);
    out.trained_in = title_of(*out.options.through);
    out.trained = out.merged;
    out.trained_is_merged = true;
    log::info(concat("the adapter is merged onto the weights of ", base.string(), " as ", out.trained_in,
                     " makes them"));
  } else if (in_training) {
    out.trained_in = title_of(*in_training);
    out.trained = {base, source, in_training};
    log::info(concat("the adapter was trained on ", out.trained_in,
                     " weights and is merged onto the original ones of ", base.string(),
                     "; --dequantized merges onto those that it was trained on"));
  }
  return out;
}

}  // namespace trainer
