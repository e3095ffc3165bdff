// Opens the weights of a model and of an adapter. Those who have a .bin pickle are told the command that
// converts it to safetensors.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>
#include <string>
#include <type_traits>
#include <utility>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"
#include "trainer/formats/peft.h"
#include "trainer/formats/safetensors.h"

#include "base/checked_name.h"
#include "base/file_facts.h"
#include "base/shell_word.h"
#include "base/text.h"
#include "formats/json_file.h"
#include "formats/model_limits.h"
#include "formats/text_half.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;

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

// Both commands need Python with the Hugging Face libraries and write next to the pickle.
std::string model_conversion_command(const fs::path& directory) {
  return concat("python3 -c \"import sys, transformers as t; t.", model_class(directory),
                ".from_pretrained(sys.argv[1], torch_dtype='auto').save_pretrained(sys.argv[1])\" ",
                shell_word(directory.string()));
}

std::string adapter_conversion_command(const fs::path& directory) {
  return concat(
      "python3 -c \"import sys, torch, safetensors.torch as s; d = sys.argv[1] + '/adapter_model.'; "
      "w = torch.load(d + 'bin', map_location='cpu', weights_only=True); "
      "s.save_file({k: v.clone().contiguous() for k, v in w.items()}, d + 'safetensors', {'format': "
      "'pt'})\" ",
      shell_word(directory.string()));
}

std::vector<std::string> files_ending_in(const fs::path& directory, const std::string& ending) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(ending)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

[[noreturn]] void refuse_without_safetensors(const fs::path& directory) {
  const std::string missing = concat((directory / kSingleFile).string(), ": is missing");
  const std::vector<std::string> others = files_ending_in(directory, ".safetensors");
  if (!others.empty()) {
    throw FormatError(concat(missing, ", and so is ", kIndexFile, "; the directory has ", join_some(others),
                             ": rename a single file to ", kSingleFile, ", or get the index of several"));
  }
  const std::vector<std::string> pickles = files_ending_in(directory, ".bin");
  if (!pickles.empty()) {
    throw of_family(ErrorCode::weights_format,
                    FormatError(concat(missing, "; the directory has pickles (", join_some(pickles),
                                       "), which can run code when they are read. Convert them once with\n  ",
                                       model_conversion_command(directory))));
  }
  throw FormatError(concat(missing, ": the directory holds no weights; download the model again"));
}

// tensor -> file, from the index. A file must be a plain name: an index never refers to another directory.
std::map<std::string, CheckedName> read_index(const fs::path& path) {
  const nlohmann::json index = read_json_object(path);
  const auto found = index.find("weight_map");
  if (found == index.end() || !found->is_object() || found->empty()) {
    throw FormatError(concat(path.string(), ": has no weight_map; download it again"));
  }
  std::map<std::string, CheckedName> file_of;
  for (const auto& [tensor, file] : found->items()) {
    const auto name = file.is_string() ? CheckedName::file(file.get_ref<const std::string&>()) : std::nullopt;
    if (!name) {
      throw FormatError(concat(path.string(), ": weight_map: '", one_line(tensor, 200),
                               "': ", one_line(file.dump(), 200), " is not a file name"));
    }
    file_of[tensor] = *name;
  }
  return file_of;
}

void add_file(ModelWeights& weights, const fs::path& path) {
  SafetensorsFile file = read_safetensors(path);
  const std::string name = path.filename().string();
  for (const auto& [tensor, view] : file.tensors) {
    const auto [at, is_new] = weights.file_of.try_emplace(tensor, name);
    if (!is_new) {
      throw FormatError(concat(path.parent_path().string(), ": tensor '", tensor, "' is in both ", at->second,
                               " and ", name, "; are these files of one model?"));
    }
    weights.tensors[tensor] = view;
  }
  weights.files.push_back(std::move(file));
}

bool has_begin(const std::map<std::string, TensorView>& tensors, const std::string& begin) {
  const auto found = tensors.lower_bound(begin);
  return found != tensors.end() && found->first.starts_with(begin);
}

// Transformers saves the body of a decoder alone (AutoModel) without "model.", which it has beside a head.
void name_bare_body(ModelWeights& weights) {
  const bool bare = weights.tensors.contains("embed_tokens.weight") &&
                    has_begin(weights.tensors, "layers.") && !has_begin(weights.tensors, "model.");
  if (!bare) return;
  const auto rename = [](auto& by_name) {
    std::remove_reference_t<decltype(by_name)> renamed;
    for (auto& [name, value] : by_name) {
      const bool is_beside =
          name.starts_with("lm_head.") || name.starts_with("score.") || name.starts_with("mtp.");
      renamed[is_beside ? name : concat("model.", name)] = std::move(value);
    }
    by_name = std::move(renamed);
  };
  rename(weights.tensors);
  rename(weights.file_of);
}

void add_shards(ModelWeights& weights, const fs::path& directory) {
  const fs::path index = directory / kIndexFile;
  const auto listed = read_index(index);
  std::set<CheckedName> names;
  for (const auto& [tensor, file] : listed) names.insert(file);
  std::vector<std::string> missing;
  for (const CheckedName& name : names) {
    if (!has_entry(directory / name)) missing.push_back(name.text());
  }
  if (!missing.empty()) {
    throw FormatError(concat(directory.string(), ": ", missing.size(), " of ", names.size(), " files that ",
                             kIndexFile, " lists are missing: ", join_some(missing), "; download them"));
  }
  for (const CheckedName& name : names) add_file(weights, directory / name);
  for (const auto& [tensor, file] : listed) {
    const auto found = weights.file_of.find(tensor);
    if (found == weights.file_of.end() || found->second != file.text()) {
      throw FormatError(concat(index.string(), ": tensor '", tensor, "' is not in ", file,
                               "; the index and the files do not belong together; download them again"));
    }
  }
}

}  // namespace

std::shared_ptr<const MappedFile> ModelWeights::mapping_of(const std::string& name) const {
  const std::string& file_name = file_of.at(name);
  // Files are opened in the order of their names.
  const auto file = std::ranges::lower_bound(
      files, file_name, {}, [](const SafetensorsFile& f) { return f.mapping->path().filename().string(); });
  if (file == files.end() || file->mapping->path().filename() != file_name)
    throw std::logic_error("ModelWeights: no file " + file_name);
  return file->mapping;
}

int64_t ModelWeights::total_bytes() const {
  int64_t total = 0;
  for (const auto* part : {&tensors, &others}) {
    for (const auto& [name, view] : *part) total += static_cast<int64_t>(view.nbytes);
  }
  return total;
}

ModelWeights read_model_weights(const fs::path& directory) {
  require_model_directory(directory);
  ModelWeights weights;
  in_family(ErrorCode::model_files, [&] {
    if (has_entry(directory / kSingleFile)) {
      add_file(weights, directory / kSingleFile);
    } else if (has_entry(directory / kIndexFile)) {
      add_shards(weights, directory);
    } else {
      refuse_without_safetensors(directory);
    }
  });
  if (has_stored_names(directory)) {
    separate_text_half(weights);
  } else {
    name_bare_body(weights);
  }
  return weights;
}

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
