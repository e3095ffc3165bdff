#include "training/prepare_model.h"

#include "trainer/adapters/lora.h"
#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "models/vocabulary.h"

namespace trainer {
namespace {

void set_dropout(Model& model, const TrainingConfig& config) {
  if (!config.dropout) return;
  if (*config.dropout > 0 && !model.has_dropout()) {
    throw ConfigError(concat("training.dropout: models of type ", model.model_type(),
                             " have no dropout of their own; use lora.lora_dropout, or leave it out"));
  }
  model.set_dropout(*config.dropout);
}

void grow_vocabulary(Model& model, int64_t rows) {
  if (rows > model.vocab_size()) resize_vocabulary(model, rows);
}

}  // namespace

std::optional<AdapterConfig> prepare_for_training(Model& model, const Config& config, int64_t vocab_rows,
                                                  at::Device device) {
  set_dropout(model, config.training);
  const bool added = !config.model.add_tokens.empty();
  const bool continues = config.lora && !config.lora->adapter.empty();  // it has its own rows
  if (added && !continues) grow_vocabulary(model, vocab_rows);
  if (!config.lora) return std::nullopt;
  AdapterConfig adapter = apply_lora(model, *config.lora, static_cast<uint64_t>(config.seed), device, added);
  if (added && continues) grow_vocabulary(model, vocab_rows);
  return adapter;
}

std::optional<Quantisation> quantisation_of(const Config& config) {
  if (config.model.quantize == Quantize::none) return std::nullopt;
  Quantisation out{config.model.double_quant};
  if (config.lora) {
    const std::string& adapter = config.lora->adapter;
    out.keep_dense =
        adapter.empty() ? config.lora->modules_to_save : read_adapter_config(adapter).modules_to_save;
  }
  return out;
}

bool divides_weights(const Config& config, int64_t ranks) {
  return ranks > 1 && config.parallel.shard == Shard::all;
}

}  // namespace trainer
