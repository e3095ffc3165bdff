#include "training/prepare_model.h"

#include <ATen/ATen.h>

#include "trainer/adapters/lora.h"
#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/models/model.h"

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
  if (!config.model.quantises()) return std::nullopt;
  Quantisation out{.double_quant = config.model.double_quant, .format = config.model.quantize};
  if (config.lora) {
    const std::string& adapter = config.lora->adapter;
    out.keep_dense =
        adapter.empty() ? config.lora->modules_to_save : read_adapter_config(adapter).modules_to_save;
  }
  return out;
}

std::optional<ScoreHeadSpec> score_head_for(const Config& config) {
  const RowScore score = config.objective.row_score();
  if (score == RowScore::none) return std::nullopt;
  ScoreHeadSpec head{.score = score, .labels = {"LABEL_0"}, .seed = static_cast<uint64_t>(config.seed)};
  head.encoder_only = config.model.encoder_only || score == RowScore::tags || score == RowScore::vector;
  if (score == RowScore::vector) head.labels.clear();
  if (!has_classes(score)) return head;
  const std::vector<std::string>& of_data = config.data.labels.classes;
  head.labels = !of_data.empty()                   ? of_data
                : !config.objective.labels.empty() ? config.objective.labels
                                                   : std::vector<std::string>{"LABEL_0", "LABEL_1"};
  return head;
}

bool shards_weights(const Config& config, int64_t ranks) {
  return ranks > 1 && config.parallel.shard == Shard::all;
}

at::Tensor UpdateCheck::sample_of(const at::Tensor& tensor) {
  constexpr int64_t kElements = 4096;
  const at::Tensor flat = tensor.detach().view({-1});
  const int64_t stride = std::max<int64_t>(1, flat.numel() / kElements);
  return flat.slice(0, 0, flat.numel(), stride)
      .clone()
      .view(at::kByte);  // as bytes, so that NaN equals itself
}

UpdateCheck::UpdateCheck(Model& model) {
  model.for_each_parameter([&](const std::string& name, Parameter& parameter) {
    if (parameter.value.is_of_other_rank()) return;
    std::vector<Seen>& seen = parameter.trained() ? trained_ : frozen_;
    for (const at::Tensor& kept : parameter.value.tensors()) seen.push_back({name, kept, sample_of(kept)});
  });
}

std::string UpdateCheck::after_update(double learning_rate) const {
  for (const Seen& seen : frozen_) {
    if (!sample_of(seen.value).equal(seen.sample)) {
      throw of_family(ErrorCode::internal_error,
                      NumericsError(concat("the frozen tensor ", seen.name,
                                           " changed in the first update; this is a bug: please report "
                                           "it with the configuration")));
    }
  }
  size_t moved = 0, waiting = 0;
  for (const Seen& seen : trained_) {
    const bool has_moved = !sample_of(seen.value).equal(seen.sample);
    moved += has_moved ? 1 : 0;
    waiting += !has_moved && seen.name.ends_with(".lora_A.weight") ? 1 : 0;
  }
  if (moved == 0) {
    throw of_family(
        ErrorCode::nothing_learned,
        NumericsError(concat("none of the ", trained_.size(),
                             " trained tensors moved in an update with learning rate ", learning_rate,
                             ": all gradients are zero, or the learning rate is too small for the type "
                             "of the weights")));
  }
  // lora_B begins as 0, so that the gradient of lora_A is 0 in the first update.
  const std::string frozen =
      frozen_.empty() ? "" : concat("; the ", frozen_.size(), " frozen tensors did not change");
  if (waiting > 0 && moved + waiting == trained_.size()) return "LoRA weights are updating" + frozen;
  return concat("weights are updating: ", moved, " of ", trained_.size(), " trained tensors changed", frozen);
}

}  // namespace trainer
