#include "formats/conversion_advice.h"

#include <algorithm>
#include <cctype>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "formats/json_file.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

// Quotes a text as one word of a POSIX shell.
std::string shell_quoted(const std::string& text) {
  std::string quoted = "'";
  for (char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// Returns the class that config.json names, because AutoModel would drop the output head.
std::string model_class(const fs::path& directory) {
  try {
    const nlohmann::json config = read_json_object(directory / "config.json");
    const auto& names = config.at("architectures");
    const std::string name = names.at(0).get<std::string>();
    const bool plain = std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c); });
    if (plain && !name.empty()) return name;
  } catch (const nlohmann::json::exception&) {
  } catch (const FormatError&) {
  }
  return "AutoModelForCausalLM";
}

}  // namespace

std::string model_conversion_command(const fs::path& directory) {
  return concat("python3 -c \"import sys, transformers as t; t.", model_class(directory),
                ".from_pretrained(sys.argv[1], torch_dtype='auto').save_pretrained(sys.argv[1])\" ",
                shell_quoted(directory.string()));
}

std::string adapter_conversion_command(const fs::path& directory) {
  return concat(
      "python3 -c \"import sys, torch, safetensors.torch as s; d = sys.argv[1] + '/adapter_model.'; "
      "w = torch.load(d + 'bin', map_location='cpu', weights_only=True); "
      "s.save_file({k: v.clone().contiguous() for k, v in w.items()}, d + 'safetensors', {'format': "
      "'pt'})\" ",
      shell_quoted(directory.string()));
}

}  // namespace trainer
