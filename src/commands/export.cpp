// trainer export, trainer merge: write a model for other programs.
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/export/export_model.h"
#include "trainer/memory/device_memory.h"

#include "commands/library.h"
#include "commands/options.h"
#include "run/end_of_run.h"

namespace trainer {
namespace {

std::optional<Dtype> dtype_of(const std::string& name) {
  if (name == "bf16") return Dtype::bf16;
  if (name == "fp16") return Dtype::f16;
  if (name == "fp32") return Dtype::f32;
  return std::nullopt;
}

std::optional<GgufType> gguf_type_of(const std::string& name) {
  if (name == "bf16") return GgufType::bf16;
  if (name == "fp16") return GgufType::f16;
  if (name == "fp32") return GgufType::f32;
  if (name == "q8_0") return GgufType::q8_0;
  if (name == "q4_k_m") return GgufType::q4_k;
  return std::nullopt;
}

void run_export(const ExportOptions& options) {
  return_large_blocks();
  ExportRequest request{options.source, options.out};
  request.dtype = dtype_of(options.dtype);
  request.max_shard_bytes = options.max_shard_bytes;
  request.adapter_only = options.adapter;
  request.base = options.base;
  request.dequantised = options.dequantised;
  request.modelfile = options.gguf && !options.adapter;
  if (!options.gguf && !options.quantize.empty())
    request.quantise = Quantisation{.double_quant = options.double_quant, .format = options.quantize};
  const ExportReport report =
      options.gguf
          ? export_gguf(request, gguf_type_of(options.quantize.empty() ? options.dtype : options.quantize))
          : export_model(request);
  std::string text = concat(bytes_string(report.bytes), " written to ", options.out);
  if (report.merged + report.replaced > 0)
    text = concat("merged: ", report.merged, " tensors changed, ", report.replaced, " replaced; ", text);
  if (report.untied) text += "; the head is now a tensor of its own, lm_head.weight";
  log::info(concat("checked: ", report.check));
  if (!report.difference.empty()) log::info(concat("difference: ", report.difference));
  if (!report.modelfile.empty())
    text += concat("; for Ollama: ollama create NAME -f ", report.modelfile.string());
  log::info(concat("done: ", text));
}

const InLibrary export_in_library(+[](ExportOptions& options) {
  translate_torch_errors("What helps: a machine with more memory, or ending other programs on this one.",
                         [&] { run_export(options); });
});

}  // namespace
}  // namespace trainer
