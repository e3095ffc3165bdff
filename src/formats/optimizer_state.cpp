#include "formats/optimizer_state.h"

#include <charconv>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

namespace trainer {
namespace {

constexpr const char* kName = "optimizer";
constexpr const char* kSteps = "steps_taken";

int64_t steps_in(const std::map<std::string, std::string>& metadata, const std::string& where) {
  const auto found = metadata.find(kSteps);
  int64_t steps = -1;
  if (found != metadata.end()) {
    const std::string& text = found->second;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), steps);
    if (error != std::errc() || end != text.data() + text.size()) steps = -1;
  }
  if (steps < 0)
    throw FormatError(concat(where, ": its metadata has no ", kSteps, "; it is not an optimizer state"));
  return steps;
}

TensorSources named_in_file(const TensorsOfParameters<TensorSource>& tensors) {
  TensorSources sources;
  for (const auto& [parameter, kept] : tensors) {
    for (const auto& [what, tensor] : kept) {
      if (what.empty() || what.find('.') != std::string::npos)
        throw FormatError(concat(kOptimizerFile, ": '", what, "' cannot name a tensor of a parameter"));
      sources[concat(parameter, ".", what)] = tensor;
    }
  }
  return sources;
}

}  // namespace

void write_optimizer_state(const std::filesystem::path& directory, const std::string& name,
                           int64_t steps_taken, const TensorsOfParameters<TensorSource>& tensors) {
  write_safetensors(directory / kOptimizerFile, named_in_file(tensors),
                    {{kName, name}, {kSteps, std::to_string(steps_taken)}});
}

void fill_optimizer_state(const std::filesystem::path& directory,
                          const TensorsOfParameters<TensorSource>& tensors) {
  if (!tensors.empty()) fill_safetensors(directory / kOptimizerFile, named_in_file(tensors));
}

OptimizerState read_optimizer_state(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kOptimizerFile;
  SafetensorsFile file = read_safetensors(path);
  OptimizerState state{file.metadata[kName], steps_in(file.metadata, path.string()), {}, file.mapping};
  for (auto& [name, tensor] : file.tensors) {
    const size_t dot = name.rfind('.');
    if (dot == std::string::npos || dot == 0 || dot + 1 == name.size())
      throw FormatError(concat(path.string(), ": tensor '", name, "': is not of the form PARAMETER.WHAT"));
    state.tensors[name.substr(0, dot)][name.substr(dot + 1)] = std::move(tensor);
  }
  return state;
}

}  // namespace trainer
