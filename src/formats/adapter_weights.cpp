#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/peft.h"

#include "base/regular_file.h"
#include "formats/conversion_advice.h"
#include "formats/model_limits.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

constexpr const char* kWeightsFile = "adapter_model.safetensors";
constexpr std::string_view kAdapterPrefix = "base_model.model.";

}  // namespace

SafetensorsFile read_adapter_weights(const fs::path& directory) {
  return in_family(ErrorCode::adapter, [&]() -> SafetensorsFile {
    const fs::path path = directory / kWeightsFile;
    if (!has_entry(path)) {
      if (fs::exists(directory / "adapter_model.bin")) {
        throw of_family(
            ErrorCode::weights_format,
            FormatError(concat(
                path.string(), ": is missing; the directory has adapter_model.bin, a pickle, which can run ",
                "code when it is read. Convert it once with\n  ", adapter_conversion_command(directory))));
      }
      throw FormatError(concat(path.string(), ": is missing; the adapter has no weights"));
    }
    SafetensorsFile file = read_safetensors(path);
    std::map<std::string, TensorView> tensors;
    for (auto& [name, view] : file.tensors) {
      if (!name.starts_with(kAdapterPrefix)) {
        throw FormatError(concat(path.string(), ": tensor '", name,
                                 "': the names in a PEFT adapter begin with ", kAdapterPrefix));
      }
      if (!is_floating(view.dtype)) {
        throw FormatError(concat(path.string(), ": tensor '", name, "': is of type ", dtype_name(view.dtype),
                                 "; weights must be of a floating point type (F32, BF16, F16)"));
      }
      tensors[name.substr(kAdapterPrefix.size())] = std::move(view);
    }
    file.tensors = std::move(tensors);
    return file;
  });
}

void write_adapter_weights(const fs::path& directory, const std::map<std::string, TensorView>& tensors,
                           const std::map<std::string, std::string>& metadata) {
  std::map<std::string, TensorView> prefixed;
  for (const auto& [name, view] : tensors) prefixed[concat(kAdapterPrefix, name)] = view;
  write_safetensors(directory / kWeightsFile, prefixed, metadata);
}

}  // namespace trainer
