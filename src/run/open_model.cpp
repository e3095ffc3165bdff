#include "run/open_model.h"

#include <algorithm>

#include "trainer/adapters/lora.h"
#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/formats/checkpoint.h"
#include "trainer/formats/peft.h"
#include "trainer/models/load_model.h"

#include "base/progress.h"
#include "run/choose_dtype.h"

namespace trainer {

GenerationConfig generation_config(const std::filesystem::path& model_directory, const Tokenizer& tokenizer,
                                   const Model& model) {
  GenerationConfig config = read_generation_config(model_directory, model.vocab_size());
  const auto eos = tokenizer.eos_id();
  std::vector<int32_t>& ends = config.eos_token_ids;
  if (eos && std::ranges::find(ends, *eos) == ends.end()) ends.push_back(*eos);
  return config;
}

OpenModel open_model(const ModelConfig& config, at::Device device) {
  OpenModel out;
  out.base = base_directory(config.path);
  const Progress shown("loading the model");
  verify_model_files(config.path);
  if (out.base != config.path) verify_model_files(out.base);
  out.tokenizer = load_tokenizer(config.path);
  LoadReport report;
  LoadOptions options{device, choose_dtype(config, device), /*train_all=*/false};
  if (config.quantize == Quantize::nf4) options.quantise = Quantisation{config.double_quant};
  out.model = load_model_or_adapter(config.path, options, &report);
  log::debug(report.line());
  check_vocabulary(*out.tokenizer, *out.model, config.path);
  return out;
}

void check_vocabulary(const Tokenizer& tokenizer, const Model& model, const std::string& path) {
  if (tokenizer.vocab_size() > model.vocab_size()) {
    throw FormatError(concat(path, ": the tokenizer gives ids up to ", tokenizer.vocab_size() - 1,
                             ", but the embedding has ", model.vocab_size(),
                             " rows; use the tokenizer that was saved with this model"));
  }
}

}  // namespace trainer
