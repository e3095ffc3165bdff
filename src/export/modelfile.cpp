#include "export/modelfile.h"

#include <array>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/formats/gguf.h"

#include "export/gguf_export.h"
#include "formats/json_file.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::ordered_json;

// Contents that no template writes by itself.
constexpr const char *kSystem = "zqsystemqz", *kFirst = "zqfirstqz", *kAnswer = "zqanswerqz",
                     *kNext = "zqnextqz";

Json message(const char* role, const char* content) { return {{"role", role}, {"content", content}}; }

// What a template writes before each of these texts, in their order, and behind the last; nullopt if it
// refuses the messages, or does not write each text once.
std::optional<std::vector<std::string>> around(const ChatTemplate& chat_template, const Json& messages) {
  std::string text;
  try {
    text = chat_template.render(messages, nullptr, Json{{"add_generation_prompt", true}});
  } catch (const DataError&) {
    return std::nullopt;
  }
  std::vector<std::string> parts;
  size_t at = 0;
  for (const Json& each : messages) {
    const auto content = each["content"].get<std::string>();
    const size_t found = text.find(content, at);
    if (found == std::string::npos) return std::nullopt;
    parts.push_back(text.substr(at, found - at));
    at = found + content.size();
  }
  parts.push_back(text.substr(at));
  for (const std::string& part : parts)
    for (const char* content : {kSystem, kFirst, kAnswer, kNext})
      if (part.find(content) != std::string::npos) return std::nullopt;
  return parts;
}

// The texts around messages; with them a conversation is
//   head first_question asks answer goes_on next_question asks ...
// or it begins with system_head system after_system.
struct Pieces {
  std::string head, system_head, after_system, before_answer, before_question, asks;
};

std::optional<Pieces> find_pieces(const ChatTemplate& chat_template) {
  const Json system = message("system", kSystem), first = message("user", kFirst),
             answer = message("assistant", kAnswer), next = message("user", kNext);
  const auto once = around(chat_template, Json::array({first})),
             twice = around(chat_template, Json::array({first, answer, next}));
  if (!once || !twice) return std::nullopt;
  Pieces out{(*once)[0], "", "", (*twice)[1], (*twice)[2], (*once)[1]};
  if ((*twice)[0] != out.head || (*twice)[3] != out.asks) return std::nullopt;
  const auto with_system = around(chat_template, Json::array({system, first}));
  if (!with_system) return out;  // it has no place for one
  out.system_head = (*with_system)[0];
  out.after_system = (*with_system)[1];
  const auto all = around(chat_template, Json::array({system, first, answer, next}));
  const std::vector<std::string> expected{out.system_head, out.after_system, out.before_answer,
                                          out.before_question, out.asks};
  return all && *all == expected ? std::optional(out) : std::nullopt;
}

void remove_start(std::string& text, const std::string& start) {
  if (text.starts_with(start)) text.erase(0, start.size());
}

}  // namespace

std::string ollama_template(const ChatTemplate& chat_template, const std::string& bos) {
  std::optional<Pieces> pieces = find_pieces(chat_template);
  if (!pieces) return "";
  remove_start(pieces->head, bos);
  remove_start(pieces->system_head, bos);
  for (const std::string* piece : {&pieces->head, &pieces->system_head, &pieces->after_system,
                                   &pieces->before_answer, &pieces->before_question, &pieces->asks}) {
    if (piece->find("{{") != std::string::npos || piece->find("\"\"\"") != std::string::npos) return "";
  }
  // A system message is among .Messages, too.
  return concat("{{ if .System }}", pieces->system_head, "{{ .System }}", pieces->after_system, "{{ else }}",
                pieces->head,
                "{{ end }}{{ range $i, $_ := .Messages }}{{ $last := eq (len (slice $.Messages $i)) 1 }}"
                "{{ if eq .Role \"user\" }}{{ if or (eq $i 0) (and (eq $i 1) $.System) }}{{ else }}",
                pieces->before_question, "{{ end }}{{ .Content }}{{ if $last }}", pieces->asks,
                "{{ end }}{{ else if eq .Role \"assistant\" }}", pieces->before_answer,
                "{{ .Content }}{{ end }}{{ end }}");
}

namespace {

// Texts of tokens by the keys of the file.
class TokenTexts {
 public:
  explicit TokenTexts(const GgufFile& file) : file_(file) {}
  std::string operator()(const char* key) const {
    const auto id = file_.metadata.find(concat("tokenizer.ggml.", key));
    if (id == file_.metadata.end()) return "";
    const auto& tokens = std::get<std::vector<std::string>>(file_.metadata.at("tokenizer.ggml.tokens"));
    return tokens.at(std::get<uint32_t>(id->second));
  }

 private:
  const GgufFile& file_;
};

// Ollama's names of the settings of generation_config.json.
constexpr std::array<std::pair<const char*, const char*>, 5> kParameters{
    {{"temperature", "temperature"},
     {"top_k", "top_k"},
     {"top_p", "top_p"},
     {"min_p", "min_p"},
     {"repetition_penalty", "repeat_penalty"}}};

// Without do_sample the model is meant to give its most likely tokens.
std::string sampling_of(const MergedModel& model) {
  const char* name = "generation_config.json";
  const fs::path path = (fs::exists(model.source / name) ? model.source : model.base) / name;
  if (!fs::exists(path)) return "";
  const Json settings = read_ordered_json_object(path);
  std::string out;
  if (settings.value("do_sample", Json(false)) != true)
    return settings.contains("do_sample") ? "PARAMETER temperature 0\n" : "";
  for (const auto& [ours, theirs] : kParameters) {
    const auto found = settings.find(ours);
    if (found != settings.end() && found->is_number())
      out += concat("PARAMETER ", theirs, " ", found->dump(), "\n");
  }
  return out;
}

std::string stops_of(const TokenTexts& text_of) {
  std::string out;
  std::set<std::string> seen;
  for (const char* key : {"eot_token_id", "eos_token_id"}) {
    const std::string stop = text_of(key);
    if (stop.empty() || stop.find('"') != std::string::npos || !seen.insert(stop).second) continue;
    out += concat("PARAMETER stop \"", stop, "\"\n");
  }
  return out;
}

}  // namespace

std::string modelfile(const MergedModel& model, const fs::path& written, const std::string& name) {
  const GgufFile file = read_gguf(written);
  if (std::get<std::string>(file.metadata.at("general.architecture")) == "t5") return "";
  const TokenTexts text_of(file);
  std::string out = concat("FROM ./", name, "\n");
  if (const auto chat_template = load_chat_template(chat_directory(model))) {
    const bool adds_bos = std::get<bool>(file.metadata.at("tokenizer.ggml.add_bos_token"));
    const std::string text = ollama_template(*chat_template, adds_bos ? text_of("bos_token_id") : "");
    if (text.empty()) {
      log::warning(
          "the Modelfile has no TEMPLATE: the chat template does more than put texts around messages, which "
          "Ollama's form cannot say; Ollama looks for a template that it knows in the GGUF");
    } else {
      out += concat("TEMPLATE \"\"\"", text, "\"\"\"\n");
    }
  }
  return out + stops_of(text_of) + sampling_of(model);
}

fs::path modelfile_path(const fs::path& out) {
  fs::path usual = out.parent_path() / "Modelfile";
  const bool is_ours =
      !fs::exists(usual) || read_file(usual).starts_with(concat("FROM ./", out.filename().string(), "\n"));
  if (is_ours) return usual;
  fs::path own = out;
  return own.replace_extension(".Modelfile");
}

}  // namespace trainer
