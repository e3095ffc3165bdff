#include "trainer/export/export_model.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "trainer/adapters/lora.h"
#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/formats/checkpoint.h"
#include "trainer/formats/model_directory.h"
#include "trainer/formats/peft.h"
#include "trainer/text/chat_template.h"

#include "adapters/merged_model.h"
#include "base/progress.h"
#include "export/compare_logits.h"
#include "export/gguf_export.h"
#include "export/modelfile.h"
#include "export/new_output.h"
#include "export/quantised_export.h"
#include "formats/json_file.h"
#include "formats/sentence_files.h"
#include "formats/text_half.h"
#include "models/build_model.h"
#include "weights/weight_format.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

// The weights that an adapter is merged onto, and those that it was trained on.
struct MergeSources {
  MergeOptions options;
  LogitsSource merged;                  // model and adapter that are merged
  std::optional<LogitsSource> trained;  // the model on quantised weights that was trained, if it was
  std::string trained_in;               // the name of their format
  bool trained_is_merged = false;       // both are the same
};

// Returns the name of the format that the model is stored in; "": in none.
std::string stored_in(const fs::path& model) {
  try {
    nlohmann::json config = read_model_config(model);
    ModelWeights weights = read_model_weights(model);
    settle_files(architecture_of(config, model), model, config, weights);
    const auto stored = read_quantization_config(config);
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
    if (request.quantise && title_of(*request.quantise) == format)
      throw ConfigError(concat(source.string(), ": is stored in ", format, " already; leave out --quantize"));
    log::info(concat(source.string(), ": is stored in ", format, "; its weights are ",
                     request.quantise ? "quantised again" : "written dequantised"));
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
  } else if (!named.empty() && (fs::exists(named) || fs::exists(source / named))) {
    const fs::path own = base_directory(source);
    out.trained_in = stored_in(own);
    if (!out.trained_in.empty()) out.trained = {own, source};
  }
  return out;
}

// Logs what is merged onto which weights where they are quantised. Throws ConfigError for options that do not
// go together with this source.
MergeSources find_merge_sources(const ExportRequest& request, const fs::path& source) {
  if (!is_adapter_directory(source)) return for_model(request, source);
  // The base of an adapter that names none is the one that it was trained on.
  const bool is_other = !request.base.empty() && !read_adapter_config(source).base_model_name_or_path.empty();
  if (is_other && request.dequantised)
    throw ConfigError("--base gives the original weights, and --dequantized asks for others; leave out one");
  const std::optional<Quantisation> in_training = quantisation_in_training(source);
  if (is_other) return with_other_base(request, source, in_training);
  MergeSources out;
  const fs::path base = base_directory(source, request.base);
  out.options.base = request.base;
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

// The longest text that becomes a vector, in tokens: that of the run. Of other models sentence-transformers'
// usual for a T5.
int64_t longest_text(const fs::path& source) {
  constexpr int64_t kUsual = 512;
  return (is_adapter_directory(source) ? longest_text_of(source) : longest_sentence(source)).value_or(kUsual);
}

constexpr const char* kAdapterFile = "adapter_model.safetensors";

// The model, the adapter, or the newest checkpoint in a run's directory.
fs::path find_directory(const fs::path& from) {
  require_model_directory(from);
  if (is_adapter_directory(from) || fs::exists(from / "config.json")) return from;
  if (const auto checkpoint = newest_complete_checkpoint(from)) {
    log::info(concat(from.string(), ": holds no finished model; using its newest checkpoint, step ",
                     checkpoint->step));
    return checkpoint->path;
  }
  throw FormatError(
      concat(from.string(),
             ": holds neither a model (config.json), nor an adapter (adapter_config.json), nor a "
             "checkpoint"));
}

fs::path find_source(const ExportRequest& request) {
  const Progress shown("checking the files");
  const fs::path source = find_directory(request.source);
  verify_model_files(source);
  const fs::path base = base_directory(source, request.base);
  if (base != source) verify_model_files(base);
  return source;
}

int64_t blocks_of(const nlohmann::json& config) {
  if (config.contains("num_hidden_layers")) return config_size(config, "num_hidden_layers");
  const int64_t layers = config_size(config, "num_layers", 6);  // a T5
  return layers + config_size(config, "num_decoder_layers", layers);
}

Dtype coarsest(const MergedModel& model) {
  Dtype coarsest = Dtype::f32;
  for (const auto& [name, tensor] : model.plan.tensors) {
    if (unit_of(tensor.dtype) > unit_of(coarsest)) coarsest = tensor.dtype;
  }
  return coarsest;
}

ExportReport report_of(const MergedModel& model) {
  ExportReport report;
  report.merged = model.plan.merged;
  report.replaced = model.plan.replaced;
  report.untied = model.plan.untied;
  return report;
}

TensorSources sources_of(const MergedModel& model) {
  TensorSources sources;
  for (const auto& [name, tensor] : model.plan.tensors) {
    sources[name] = {tensor.dtype, tensor.base.shape,
                     [&name = name, &tensor = tensor](std::ostream& to) { tensor.write(to, name); }};
  }
  return sources;
}

int64_t bytes_of(const TensorSources& sources) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : sources)
    bytes += static_cast<int64_t>(tensor_bytes(tensor.dtype, tensor.shape, name));
  return bytes;
}

std::string trained_model(const MergeSources& from) {
  return concat("the trained model (", from.trained_in, " with the adapter)");
}

// Loads what was written and compares it with what it was made from.
void check_merged(const MergedModel& model, const MergeSources& from, const QuantisedExport* quantised,
                  const fs::path& written, ExportReport& report) {
  const Progress shown("comparing answers");
  const at::Tensor expected = require_finite(streamed_logits(from.merged), model.source);
  const at::Tensor found = streamed_logits({written});
  if (quantised != nullptr) {
    require_finite(found, written);
    report.check = quantised->check(written);
  } else {
    report.check = check_logits(found, expected, model.source,
                                {model.is_exact(), coarsest(model), blocks_of(model.config)});
  }
  if (from.trained) {
    report.difference = difference_text(
        found, from.trained_is_merged ? expected : streamed_logits(*from.trained), trained_model(from));
  } else if (quantised != nullptr) {
    report.difference = difference_text(found, expected, "the model before it was quantised");
  } else if (model.is_adapter() && coarsest(model) == Dtype::bf16 && !model.is_exact()) {
    report.difference = answers_text(found, expected);
  }
}

// An adapter's files take precedence over those of its base. Its tokenizer_config.json may have no template.
void copy_companions(const MergedModel& model, const fs::path& out) {
  copy_files_of_other_half(model.base, out);
  copy_companion_files(model.base, out);
  if (!model.is_adapter()) return;
  if (has_chat_template(model.source)) remove_chat_templates(out);
  copy_companion_files(model.source, out);
  if (has_chat_template(out) || !has_chat_template(model.base)) return;
  const auto texts = chat_template_texts(model.base);
  if (const auto usual = texts.find("default"); usual != texts.end())
    replace_chat_template(out, usual->second);
}

ExportReport export_merged(const ExportRequest& request, const fs::path& source) {
  const MergeSources from = find_merge_sources(request, source);
  MergedModel model = open_merged(source, from.options);
  if (request.dtype) model.set_dtype(*request.dtype);
  NewOutput output(request.out, /*file=*/false);
  ExportReport report = report_of(model);
  const std::optional<QuantisedExport> quantised =
      request.quantise ? std::make_optional<QuantisedExport>(model, *request.quantise) : std::nullopt;
  const TensorSources sources =
      whole_again(model.weights, quantised ? quantised->sources() : sources_of(model));
  report.bytes = bytes_of(sources);
  require_space(output.directory(), report.bytes);
  write_model_weights(output.directory(), sources, request.max_shard_bytes);
  write_model_config(model.base, output.directory(), model.most_common_dtype(),
                     quantised ? quantised->config_changes() : model.changes);
  copy_companions(model, output.directory());
  const auto head = score_head_in(model.config);
  if (head && head->score == RowScore::vector)
    write_sentence_files(output.directory(), config_size(model.config, "d_model"),
                         longest_text(model.source));
  check_merged(model, from, quantised ? &*quantised : nullptr, output.directory(), report);
  output.complete();
  return report;
}

// adapter_config.json unchanged, except for a base path that is relative to the adapter's directory, and for
// a base that the user has given.
void write_config(const fs::path& source, const fs::path& given, const fs::path& directory) {
  const char* name = "adapter_config.json";
  auto config = read_ordered_json_object(source / name);
  const auto named = config.find("base_model_name_or_path");
  const fs::path base = named != config.end() && named->is_string() ? named->get<std::string>() : "";
  if (!given.empty()) {
    config["base_model_name_or_path"] = fs::canonical(given).string();
  } else if (!fs::exists(base) && fs::exists(source / base)) {
    config["base_model_name_or_path"] = fs::canonical(source / base).string();
  }
  write_atomically(directory / name, config.dump(2) + "\n");
}

[[noreturn]] void refuse_no_adapter(const fs::path& source) {
  throw ConfigError(concat(source.string(), ": is a model, not an adapter; leave out --adapter"));
}

ExportReport export_adapter(const ExportRequest& request, const fs::path& source) {
  if (!is_adapter_directory(source)) refuse_no_adapter(source);
  const fs::path base = base_directory(source, request.base);
  const nlohmann::json config = read_model_config(base);
  read_adapter_config(source);  // refuses what is not supported
  read_adapter_weights(source);
  const SafetensorsFile adapter = read_safetensors(source / kAdapterFile);  // PEFT's own names
  NewOutput output(request.out, /*file=*/false);
  ExportReport report;
  std::map<std::string, MergedTensor> tensors;
  TensorSources sources;
  Dtype coarse = Dtype::f32;
  bool exact = true;
  for (const auto& [name, view] : adapter.tensors) {
    MergedTensor& tensor = tensors[name];
    tensor.base = view;
    tensor.dtype = request.dtype.value_or(view.dtype);
    exact = exact && (tensor.dtype == view.dtype || tensor.dtype == Dtype::f32);
    if (unit_of(tensor.dtype) > unit_of(coarse)) coarse = tensor.dtype;
    sources[name] = {tensor.dtype, view.shape,
                     [&name = name, &tensor](std::ostream& to) { tensor.write(to, name); }};
    report.bytes += static_cast<int64_t>(tensor_bytes(tensor.dtype, view.shape, name));
  }
  require_space(output.directory(), report.bytes);
  write_safetensors(output.directory() / kAdapterFile, sources, adapter.metadata);
  write_config(source, request.base, output.directory());
  copy_companion_files(source, output.directory());
  const std::optional<Quantisation> quantised = quantisation_in_training(source);
  report.check = check_logits(streamed_logits({base, output.directory(), quantised}),
                              require_finite(streamed_logits({base, source, quantised}), source), source,
                              {exact, coarse, blocks_of(config)});
  output.complete();
  return report;
}

}  // namespace

ExportReport export_model(const ExportRequest& request) {
  const fs::path source = find_source(request);
  return request.adapter_only ? export_adapter(request, source) : export_merged(request, source);
}

// Writes the Modelfile, unless its text is empty, and then lets OUT appear.
static void complete_with(NewOutput& output, const fs::path& out, const std::string& text,
                          ExportReport& report) {
  if (text.empty()) return output.complete();
  report.modelfile = modelfile_path(out);
  write_atomically(report.modelfile, text);
  try {
    output.complete();
  } catch (...) {
    fs::remove(report.modelfile);
    throw;
  }
}

ExportReport export_gguf(const ExportRequest& request, std::optional<GgufType> type) {
  const fs::path source = find_source(request);
  const MergeSources from = find_merge_sources(request, source);
  const MergedModel model = open_merged(source, from.options);
  NewOutput output(request.out, /*file=*/true);
  const std::string name = request.out.stem().string();
  if (request.adapter_only) {
    if (!model.is_adapter()) refuse_no_adapter(source);
    ExportReport report;
    const GgufType wanted = type.value_or(GgufType::f32);
    report.bytes = write_gguf_adapter(model, wanted, name, output.file());
    report.check = check_gguf_adapter(model, wanted, output.file());
    output.complete();
    return report;
  }
  ExportReport report = report_of(model);
  report.bytes = write_gguf_model(model, type, name, output.file());
  report.check = check_gguf_model(model, type, output.file());
  if (from.trained && !from.trained_is_merged) {
    report.difference = difference_text(streamed_logits(from.merged), streamed_logits(*from.trained),
                                        trained_model(from) + ", before the file's type");
  }
  const std::string text =
      request.modelfile ? modelfile(model, output.file(), request.out.filename().string()) : "";
  complete_with(output, request.out, text, report);
  return report;
}

}  // namespace trainer
