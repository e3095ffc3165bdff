#include "trainer/generation/generation_config.h"

#include <cmath>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/text.h"
#include "base/warn_once.h"
#include "formats/generation_keys.h"
#include "formats/json_file.h"
#include "formats/two_stacks.h"

namespace trainer {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* kFile = "generation_config.json";

// Ways of generating, and changes to the scores, that are not supported, with the value that changes nothing.
const std::pair<std::string_view, json> kRefused[]{{"penalty_alpha", 0.0},
                                                   {"constraints", nullptr},
                                                   {"force_words_ids", nullptr},
                                                   {"dola_layers", nullptr},
                                                   {"guidance_scale", 1.0},
                                                   {"sequence_bias", nullptr},
                                                   {"encoder_repetition_penalty", 1.0},
                                                   {"encoder_no_repeat_ngram_size", 0},
                                                   {"bad_words_ids", nullptr},
                                                   {"exponential_decay_length_penalty", nullptr},
                                                   {"watermarking_config", nullptr},
                                                   {"token_healing", false},
                                                   {"typical_p", 1.0},
                                                   {"epsilon_cutoff", 0.0},
                                                   {"eta_cutoff", 0.0},
                                                   {"top_h", nullptr}};

// One JSON file with errors that name it.
class Reader {
 public:
  Reader(const fs::path& path, int64_t vocab_size) : path_(path), vocab_size_(vocab_size) {
    if (!fs::exists(path)) return;
    values_ = read_json_object(path);
    // The config.json of T5Gemma: what the whole leaves out is the decoder's.
    if (has_two_stacks(values_)) values_ = with_whole_stacks(values_, path.string());
    // The config.json of a model of texts and images.
    const json text = values_.value("text_config", json());
    if (!text.is_object()) return;
    for (const auto& [key, value] : text.items())
      if (find(key.c_str()) == nullptr) values_[key] = value;
  }

  bool empty() const { return values_.is_null(); }
  bool has(const char* key) const { return find(key) != nullptr; }

  void read(const char* key, bool& value) const {
    if (const json* found = find(key)) {
      if (!found->is_boolean()) wrong(key, "true or false");
      value = *found;
    }
  }
  void read(const char* key, int64_t& value, int64_t least, int64_t most) const {
    if (const json* found = find(key)) {
      if (!is_whole(*found, least, most)) wrong(key, concat("a whole number from ", least, " to ", most));
      value = *found;
    }
  }
  // A number between the two bounds; `open` excludes the lower one.
  void read(const char* key, double& value, double least, double most, bool open) const {
    if (const json* found = find(key)) {
      const double number = found->is_number() ? found->get<double>() : NAN;
      if (!(number <= most && (open ? number > least : number >= least)))
        wrong(key, concat("a number ", open ? "above " : "of at least ", least,
                          most < kNoLimit ? concat(" and at most ", most) : ""));
      value = number;
    }
  }
  void read(const char* key, EarlyStopping& value) const {
    if (const json* found = find(key)) {
      if (*found == "never") {
        value = EarlyStopping::never;
      } else if (found->is_boolean()) {
        value = found->get<bool>() ? EarlyStopping::yes : EarlyStopping::no;
      } else {
        wrong(key, "true, false or \"never\"");
      }
    }
  }
  // One id or a list of them; -1 stands for none.
  void read(const char* key, std::vector<int32_t>& ids) const {
    if (const json* found = find(key)) {
      ids.clear();
      for (const json& id : found->is_array() ? *found : json::array({*found})) {
        if (!is_whole(id, -1, vocab_size_ - 1)) {
          wrong(key, concat("a token id or a list of them, each in the vocabulary (vocab_size ", vocab_size_,
                            ")"));
        }
        if (id != -1) ids.push_back(id.get<int32_t>());
      }
    }
  }
  void read(const char* key, std::optional<int32_t>& id) const {
    std::vector<int32_t> ids;
    read(key, ids);
    if (ids.size() > 1) wrong(key, "a token id");
    if (!ids.empty()) id = ids.front();
  }

  // One text or a list of them.
  void read(const char* key, std::vector<std::string>& texts) const {
    if (const json* found = find(key)) {
      texts.clear();
      for (const json& text : found->is_array() ? *found : json::array({*found})) {
        if (!text.is_string() || text.empty() || text.get_ref<const std::string&>().empty())
          wrong(key, "a text or a list of them, none of them empty");
        texts.push_back(text);
      }
    }
  }

  // Keys that neither the program nor the list of those without effect knows.
  void warn_of_unknown() const {
    if (values_.is_null()) return;
    std::vector<std::string> unknown;
    for (const auto& [key, value] : values_.items()) {
      if (!value.is_null() && !is_generation_key(key)) unknown.push_back(key);
    }
    if (unknown.empty()) return;
    warn_once(concat(path_.string(), ": unknown keys are ignored: ", join_some(unknown),
                     " (docs/dev/model-files.md lists those that are read)"));
  }

  // An unsupported key may only have the value that changes nothing.
  void refuse_unless(const char* key, const json& neutral, const char* why = "") const {
    const json* found = find(key);
    if (found != nullptr && *found != neutral) refuse(key, *found, why);
  }
  void refuse_value(const char* key, const char* value) const {
    const json* found = find(key);
    if (found != nullptr && *found == value) refuse(key, *found);
  }

  static constexpr double kNoLimit = 1e300;

 private:
  const json* find(const char* key) const {
    const auto found = values_.is_null() ? values_.end() : values_.find(key);
    return values_.is_null() || found == values_.end() || found->is_null() ? nullptr : &*found;
  }
  // A double holds every number of the file, also those beyond 64 bits.
  static bool is_whole(const json& value, int64_t least, int64_t most) {
    if (!value.is_number_integer()) return false;
    const auto number = value.get<double>();
    return number >= static_cast<double>(least) && number <= static_cast<double>(most);
  }
  [[noreturn]] void refuse(const char* key, const json& value, const char* why = "") const {
    throw FormatError(concat(path_.string(), ": ", key, " (", value.dump().substr(0, 40),
                             ") is not supported in generation", why,
                             "; remove it from the file if it is not "
                             "needed"));
  }
  [[noreturn]] void wrong(const char* key, const std::string& expected) const {
    constexpr size_t kShown = 80;
    throw FormatError(concat(path_.string(), ": ", key, ": must be ", expected, ", is ",
                             find(key)->dump(-1, ' ', true).substr(0, kShown)));
  }

  fs::path path_;
  int64_t vocab_size_;
  json values_;
};

void refuse_unsupported(const Reader& file) {
  for (const auto& [key, value] : kRefused) file.refuse_unless(key.data(), value);
  file.refuse_unless(
      "max_time", nullptr,
      ": an answer would depend on the speed of the machine; max_new_tokens and stop_strings end it");
  file.refuse_value("cache_implementation", "quantized");
}

void read_values(const Reader& file, GenerationConfig& out) {
  constexpr double kNoLimit = Reader::kNoLimit;
  constexpr int64_t kMostTokens = 10'000'000, kMostSequences = 1000, kMostIds = INT32_MAX;
  file.read("max_new_tokens", out.max_new_tokens, 1, kMostTokens);
  if (!file.has("max_new_tokens")) file.read("max_length", out.max_length, 1, kMostTokens);
  file.read("min_new_tokens", out.min_new_tokens, 0, kMostTokens);
  file.read("min_length", out.min_length, 0, kMostTokens);
  file.read("temperature", out.temperature, 0, kNoLimit, /*open=*/true);
  file.read("top_k", out.top_k, 0, kMostIds);
  file.read("top_p", out.top_p, 0, 1, /*open=*/false);
  file.read("min_p", out.min_p, 0, 1, /*open=*/false);
  file.read("repetition_penalty", out.repetition_penalty, 0, kNoLimit, /*open=*/true);
  file.read("no_repeat_ngram_size", out.no_repeat_ngram_size, 0, kMostTokens);
  file.read("num_beams", out.num_beams, 1, kMostSequences);
  file.read("num_beam_groups", out.num_beam_groups, 1, kMostSequences);
  file.read("diversity_penalty", out.diversity_penalty, 0, kNoLimit, /*open=*/false);
  file.read("length_penalty", out.length_penalty, -kNoLimit, kNoLimit, /*open=*/false);
  file.read("early_stopping", out.early_stopping);
  file.read("num_return_sequences", out.num_return_sequences, 1, kMostSequences);
  file.read("eos_token_id", out.eos_token_ids);
  file.read("decoder_start_token_id", out.decoder_start_token_id);
  file.read("forced_bos_token_id", out.forced_bos_token_id);
  file.read("forced_eos_token_id", out.forced_eos_token_ids);
  file.read("suppress_tokens", out.suppress_tokens);
  file.read("begin_suppress_tokens", out.begin_suppress_tokens);
  file.read("renormalize_logits", out.renormalize_logits);
  file.read("stop_strings", out.stop_strings);
  std::optional<int32_t> unused;
  file.read("pad_token_id", unused);  // answers are not padded, but a wrong id means that the file is damaged
}

}  // namespace

GenerationConfig read_generation_config(const fs::path& model_directory, int64_t vocab_size,
                                        const fs::path& adapter) {
  // Without an adapter, "" / kFile would be a file of the current directory.
  const bool has_own = !adapter.empty() && fs::exists(adapter / kFile);
  const fs::path place = has_own ? adapter : model_directory;
  const Reader own(place / kFile, vocab_size), model(model_directory / "config.json", vocab_size);
  const Reader& file = own.empty() ? model : own;
  GenerationConfig config;
  refuse_unsupported(file);
  own.warn_of_unknown();
  read_values(file, config);
  if (config.eos_token_ids.empty()) model.read("eos_token_id", config.eos_token_ids);
  return config;
}

std::vector<int32_t> end_tokens(const fs::path& model_directory) {
  std::vector<int32_t> ids;
  for (const char* name : {kFile, "config.json"}) {
    if (ids.empty()) Reader(model_directory / name, INT32_MAX).read("eos_token_id", ids);
  }
  return ids;
}

}  // namespace trainer
