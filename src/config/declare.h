// What the declarations of keys are written with: a key from the member that holds it.
#pragma once

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "config/model_family.h"
#include "config/schema.h"

namespace trainer::config {

inline ModelConfig& part(Config& config, ModelConfig*) { return config.model; }
inline DataConfig& part(Config& config, DataConfig*) { return config.data; }
inline ObjectiveConfig& part(Config& config, ObjectiveConfig*) { return config.objective; }
inline TrainingConfig& part(Config& config, TrainingConfig*) { return config.training; }
inline EvaluationConfig& part(Config& config, EvaluationConfig*) { return config.evaluation; }
inline OptimizerConfig& part(Config& config, OptimizerConfig*) { return config.optimizer; }
inline SaveConfig& part(Config& config, SaveConfig*) { return config.save; }
inline ObserveConfig& part(Config& config, ObserveConfig*) { return config.observe; }
inline MemoryConfig& part(Config& config, MemoryConfig*) { return config.memory; }
inline GpuConfig& part(Config& config, GpuConfig*) { return config.gpu; }
inline ParallelConfig& part(Config& config, ParallelConfig*) { return config.parallel; }
inline RecoveryConfig& part(Config& config, RecoveryConfig*) { return config.recovery; }
inline NotifyConfig& part(Config& config, NotifyConfig*) { return config.notify; }
inline Config& part(Config& config, Config*) { return config; }
inline LoraConfig& part(Config& config, LoraConfig*) {
  if (!config.lora) config.lora.emplace();
  return *config.lora;
}

// States for the defaults of keys: a key that stands in the configuration or does not; the model's family.
inline State given(std::string key) {
  return {.key = std::move(key), .values = {}, .among = false, .if_given = true};
}
inline State not_given(std::string key) {
  return {.key = std::move(key), .values = {}, .unless_given = true};
}
inline State of_family(const char* family, bool among = true) {
  return {.key = "model", .values = {family}, .among = among};
}

// Objectives of whole answers' log-probabilities, which move a hundred times as fast as those of a token.
inline State of_preferences() {
  return {.key = "objective.name", .values = {"dpo", "ipo", "orpo", "kto", "simpo", "cpo"}};
}

// The names of an enumeration's values, in their order.
inline std::vector<std::string> names_of(ModelDtype) { return {"auto", "bf16", "fp32"}; }
inline std::vector<std::string> names_of(ModelInit) { return {"pretrained", "random"}; }
inline std::vector<std::string> names_of(DataKind) {
  return {"auto",       "seq2seq",  "completion",      "text",           "chat",
          "preference", "feedback", "span_corruption", "classification", "pairs"};
}
inline std::vector<std::string> names_of(NoiseForm) { return {"spans", "prefix", "ul2"}; }
inline std::vector<std::string> names_of(LongSamples) { return {"truncate", "drop", "split"}; }
inline std::vector<std::string> names_of(TruncationSide) { return {"right", "left"}; }
inline std::vector<std::string> names_of(BadRows) { return {"error", "skip"}; }
inline std::vector<std::string> names_of(LossOn) { return {"all_turns", "last_turn", "everything"}; }
inline std::vector<std::string> names_of(UnknownMarks) { return {"error", "ignore"}; }
inline std::vector<std::string> names_of(MicroBatching) { return {"tokens", "samples"}; }
inline std::vector<std::string> names_of(CpuProducts) {
  return {"auto", "mkl", "onednn", "by_type", "builtin"};
}
inline std::vector<std::string> names_of(IntervalStrategy) { return {"no", "steps", "epoch"}; }
inline std::vector<std::string> names_of(SaveDtype) { return {"auto", "bf16", "fp16", "fp32"}; }
inline std::vector<std::string> names_of(StateDtype) { return {"auto", "fp32", "bf16"}; }
inline std::vector<std::string> names_of(Reference) { return {"auto", "adapter_off", "kept", "none"}; }
inline std::vector<std::string> names_of(Shard) { return {"auto", "none", "optimizer", "all"}; }
inline std::vector<std::string> names_of(NotifyFormat) {
  return {"auto", "discord", "slack", "json", "text"};
}
inline std::vector<std::string> names_of(SchedulerType) {
  return {"linear", "cosine", "constant", "constant_with_warmup", "polynomial", "inverse_sqrt"};
}

// `on_resume` has no default: whoever adds a key decides.
template <class Struct, class Value>
Key key(Value Struct::*member, std::string name, OnResume on_resume, std::string help) {
  Key key;
  key.name = std::move(name);
  key.on_resume = on_resume;
  key.help = std::move(help);
  if constexpr (std::is_enum_v<Value>) {
    key.choices = names_of(Value{});
    key.field = [member](Config& config) -> Field {
      Value& value = part(config, static_cast<Struct*>(nullptr)).*member;
      return Choice{[&value] { return static_cast<size_t>(value); },
                    [&value](size_t index) { value = static_cast<Value>(index); }};
    };
  } else {
    key.field = [member](Config& config) -> Field {
      return &(part(config, static_cast<Struct*>(nullptr)).*member);
    };
  }
  return key;
}

inline Section section(std::string name, std::string help, std::vector<Key> keys) {
  for (Key& key : keys) key.section = name;
  return {std::move(name), std::move(help), false, std::move(keys)};
}

inline Section optional_section(std::string name, std::string help, std::vector<Key> keys) {
  Section made = section(std::move(name), std::move(help), std::move(keys));
  made.optional = true;
  return made;
}

// Returns the section, in which all keys but one have no effect in this state, as its help says.
inline Section idle_but(const std::string& one, const State& state, Section section) {
  for (Key& key : section.keys) {
    if (key.name != one) key.conditions.push_back({.states = {state}, .in_help = true});
  }
  return section;
}

// Sections of the schema that have a file of their own.

Section data_section();
Section evaluation_section();
Section gpu_section();
Section memory_section();
Section notify_section();
Section objective_section();
Section observe_section();
Section optimizer_section();
Section parallel_section();
Section recovery_section();
Section save_section();
Section top_level();

}  // namespace trainer::config
