#include "formats/two_stacks.h"

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/text.h"

namespace trainer {
namespace {

using nlohmann::json;

bool is_second(const json& config) { return config.at("model_type") == "t5gemma2"; }

// What the classes of Transformers have where a file has nothing.
json stack_defaults(bool second) {
  return {{"vocab_size", second ? 262208 : 256000},
          {"hidden_size", 2304},
          {"intermediate_size", 9216},
          {"num_hidden_layers", 26},
          {"num_attention_heads", 8},
          {"num_key_value_heads", 4},
          {"head_dim", 256},
          {"pad_token_id", 0},
          {"eos_token_id", 1},
          {"bos_token_id", 2}};
}

json object_under(const json& config, const std::string& key, const std::string& where) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return json::object();
  if (found->is_object()) return *found;
  throw FormatError(concat(where, ": ", key, ": must be an object with the settings of a stack, is ",
                           one_line(found->dump(), 100)));
}

json whole_stack(json stack, const json& config, const char* model_type) {
  json filled = stack_defaults(is_second(config));
  filled.update(stack);
  filled["model_type"] = model_type;
  // Transformers gives both stacks the dropout of the whole.
  for (const char* key : {"dropout_rate", "attention_dropout"}) filled[key] = config.value(key, json(0.0));
  return filled;
}

}  // namespace

bool is_of_two_stacks(std::string_view model_type) {
  return model_type == "t5gemma" || model_type == "t5gemma2";
}

bool has_two_stacks(const json& config) {
  const auto type = config.find("model_type");
  return type != config.end() && type->is_string() && is_of_two_stacks(type->get_ref<const std::string&>());
}

json with_whole_stacks(const json& config, const std::string& where) {
  const bool second = is_second(config);
  json whole = config;
  const json encoder = object_under(config, "encoder", where);
  const json text = second ? object_under(encoder, "text_config", concat(where, ": encoder")) : encoder;
  if (second) whole["eoi_token_index"] = encoder.value("eoi_token_index", json(256000));
  whole["encoder"] = whole_stack(text, config, second ? "t5gemma2_text" : "t5_gemma_module");
  whole["decoder"] = whole_stack(object_under(config, "decoder", where), config,
                                 second ? "t5gemma2_decoder" : "t5_gemma_module");
  for (const char* key : {"pad_token_id", "eos_token_id", "bos_token_id"})
    if (!whole.contains(key)) whole[key] = whole["decoder"][key];
  whole["vocab_size"] = whole["decoder"]["vocab_size"];
  if (whole["encoder"]["vocab_size"] != whole["vocab_size"]) {
    throw FormatError(concat(where, ": the encoder's vocab_size ", whole["encoder"]["vocab_size"].dump(),
                             " is not the decoder's, ", whole["vocab_size"].dump(),
                             "; both stacks take the tokens of one tokenizer"));
  }
  return whole;
}

void set_in_stacks(nlohmann::ordered_json& config, const std::string& key,
                   const nlohmann::ordered_json& value) {
  for (const char* name : {"encoder", "decoder"}) {
    if (!config.contains(name) || !config[name].is_object()) config[name] = nlohmann::ordered_json::object();
    nlohmann::ordered_json* stack = &config[name];
    const bool nested = name == std::string("encoder") && config.value("model_type", "") == "t5gemma2";
    if (nested) stack = &(*stack)["text_config"];
    if (value.is_null()) {
      if (stack->is_object()) stack->erase(key);
    } else {
      (*stack)[key] = value;
    }
  }
}

}  // namespace trainer
