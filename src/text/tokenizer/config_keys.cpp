#include "text/tokenizer/config_keys.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

#include "trainer/base/strings.h"

#include "base/text.h"
#include "base/warn_once.h"

namespace trainer {
namespace {

// Read by this program, here or in other files.
constexpr std::string_view kRead[]{"add_bos_token",
                                   "add_eos_token",
                                   "added_tokens_decoder",
                                   "additional_special_tokens",
                                   "chat_template",
                                   "clean_up_tokenization_spaces",
                                   "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output",
                                   "extra_ids",
                                   "extra_special_tokens",
                                   "fix_mistral_regex",
                                   "model_specific_special_tokens",
                                   "split_special_tokens"};

// How Python finds its classes and files.
constexpr std::string_view kPython[]{"_commit_hash",
                                     "added_tokens_file",
                                     "auto_map",
                                     "backend",
                                     "files_loaded",
                                     "from_slow",
                                     "init_inputs",
                                     "is_local",
                                     "local_files_only",
                                     "merges_file",
                                     "name_or_path",
                                     "processor_class",
                                     "revision",
                                     "slow_tokenizer_class",
                                     "special_tokens_map_file",
                                     "tokenizer_class",
                                     "tokenizer_file",
                                     "tokenizer_type",
                                     "tokenizer_version",
                                     "transformers_version",
                                     "trust_remote_code",
                                     "use_fast",
                                     "verbose",
                                     "vocab_file"};

// What a caller may ask of a tokenizer: data.max_length and its neighbours say it here.
constexpr std::string_view kCalls[]{
    "max_len",          "max_length",        "max_model_input_sizes", "model_input_names",
    "model_max_length", "pad_to_max_length", "pad_to_multiple_of",    "pad_token_type_id",
    "padding",          "padding_side",      "padding_strategy",      "return_token_type_ids",
    "stride",           "truncation",        "truncation_side",       "truncation_strategy"};

// The steps of tokenizers written in Python. tokenizer.json has its own, and Transformers 5 reads those.
constexpr std::string_view kSteps[]{"add_dummy_prefix_space",
                                    "add_prefix_space",
                                    "byte_fallback",
                                    "do_basic_tokenize",
                                    "do_lower_case",
                                    "errors",
                                    "keep_accents",
                                    "legacy",
                                    "legacy_behaviour",
                                    "never_split",
                                    "remove_space",
                                    "sp_model_kwargs",
                                    "spaces_between_special_tokens",
                                    "strip_accents",
                                    "tokenize_chinese_chars",
                                    "trim_offsets",
                                    "unk_id",
                                    "use_regex"};

// For what is done with conversations and answers outside of the template.
constexpr std::string_view kChat[]{"chat_control_tokens", "response_schema", "response_template",
                                   "use_default_system_prompt"};

bool is_in(std::span<const std::string_view> names, std::string_view key) {
  return std::ranges::find(names, key) != names.end();
}

bool is_known(std::string_view key) {
  for (const std::span<const std::string_view> names :
       {std::span<const std::string_view>(kRead), std::span<const std::string_view>(kPython),
        std::span<const std::string_view>(kCalls), std::span<const std::string_view>(kSteps),
        std::span<const std::string_view>(kChat)}) {
    if (is_in(names, key)) return true;
  }
  return false;
}

void warn_of_unknown(const JsonAt& file, bool (*known)(std::string_view)) {
  if (!file.value.is_object()) return;
  std::vector<std::string> unknown;
  for (const auto& [key, value] : file.value.items()) {
    if (!value.is_null() && !known(key) && !key.ends_with("_token")) unknown.push_back(key);
  }
  if (unknown.empty()) return;
  warn_once(concat(file.where, " unknown keys are ignored: ", join_some(unknown),
                   " (docs/dev/model-files.md lists those that are read)"));
}

}  // namespace

void check_tokenizer_config(const JsonAt& config) {
  const JsonAt split = config.get("split_special_tokens");
  if (!split.is_null() && split.boolean())
    split.fail(
        "true is not supported: it splits special tokens in texts, also those of the chat template; remove "
        "it, or set it to false");
  warn_of_unknown(config, is_known);
}

void check_special_tokens_map(const JsonAt& map) {
  warn_of_unknown(map, [](std::string_view key) {
    return key == "additional_special_tokens" || key == "extra_special_tokens" ||
           key == "model_specific_special_tokens";
  });
}

}  // namespace trainer
