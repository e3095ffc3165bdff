#include "export/merge_sources.h"

#include "trainer/adapters/lora.h"
#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"
#include "trainer/formats/peft.h"

#include "formats/bitsandbytes.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;

bool is_stored_in_nf4(const fs::path& model) {
  try {
    return read_quantization_config(read_model_config(model)).has_value();
  } catch (const FormatError& error) {
    const std::string where = (model / "").string(), what = error.what();
    throw FormatError(what.starts_with(where) ? what : where + what);
  }
}

MergeSources for_model(const ExportRequest& request, const fs::path& source) {
  if (!request.base.empty() || request.dequantised) {
    throw ConfigError(concat(source.string(), ": is a model, not an adapter; leave out ",
                             request.base.empty() ? "--dequantized" : "--base"));
  }
  if (is_stored_in_nf4(source)) {
    if (request.quantise)
      throw ConfigError(concat(source.string(), ": is stored in NF4 already; leave out --quantize"));
    log::info(concat(source.string(), ": is stored in NF4; its weights are written dequantised"));
  }
  return {{}, {source}, std::nullopt};
}

}  // namespace

MergeSources find_merge_sources(const ExportRequest& request, const fs::path& source) {
  if (!is_adapter_directory(source)) return for_model(request, source);
  if (!request.base.empty() && request.dequantised)
    throw ConfigError("--base gives the original weights, and --dequantized asks for others; leave out one");
  const std::optional<Quantisation> in_training = quantisation_in_training(source);
  MergeSources out;
  if (!request.base.empty()) {
    out.options.base = request.base;
    out.merged = {request.base, source};
    if (is_stored_in_nf4(request.base)) {
      throw ConfigError(concat("--base ", request.base.string(),
                               ": is stored in NF4; give the model with its original weights"));
    }
    const fs::path named = read_adapter_config(source).base_model_name_or_path;
    if (in_training) {
      out.trained = {request.base, source, in_training};
    } else if (fs::exists(named) || fs::exists(source / named)) {
      const fs::path own = base_directory(source);
      if (is_stored_in_nf4(own)) out.trained = {own, source};
    }
    return out;
  }
  const fs::path base = base_directory(source);
  out.merged = {base, source};
  if (is_stored_in_nf4(base)) {
    log::info(concat(base.string(),
                     ": is stored in NF4; the adapter is merged onto the dequantised weights. ",
                     "If you have the original ones, --base DIR merges onto those"));
    out.trained = out.merged;
    out.trained_is_merged = true;
  } else if (request.dequantised) {
    const Quantisation usual{.keep_dense = read_adapter_config(source).modules_to_save};
    out.options.through = out.merged.quantise = in_training.value_or(usual);
    out.trained = out.merged;
    out.trained_is_merged = true;
    log::info(concat("the adapter is merged onto the weights of ", base.string(), " as NF4 makes them"));
  } else if (in_training) {
    out.trained = {base, source, in_training};
    log::info(concat("the adapter was trained on NF4 weights and is merged onto the original ones of ",
                     base.string(), "; --dequantized merges onto those that it was trained on"));
  }
  return out;
}

}  // namespace trainer
