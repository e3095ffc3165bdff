#include <algorithm>
#include <cstdio>
#include <iterator>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"
#include "trainer/formats/safetensors.h"

#include "base/checked_name.h"
#include "formats/json_file.h"
#include "formats/text_half.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

constexpr const char* kTokenizerFiles[]{"tokenizer.json",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "vocab.json",
                                        "merges.txt",
                                        "spiece.model",
                                        "tokenizer.model",
                                        "chat_template.jinja",
                                        "chat_template.json"};
constexpr const char* kTemplateFolder = "additional_chat_templates";
constexpr const char* kOtherFiles[]{"generation_config.json"};

std::vector<std::string> copy_files(const std::vector<std::string>& names, const fs::path& from,
                                    const fs::path& to) {
  std::vector<std::string> copied;
  const bool same = fs::exists(to) && fs::equivalent(from, to);
  for (const std::string& name : names) {
    if (!fs::is_regular_file(from / name)) continue;
    if (!same) {
      make_directories((to / name).parent_path());
      write_atomically(to / name, read_file(from / name));
    }
    copied.push_back(name);
  }
  return copied;
}

// Chat templates besides the default one, "additional_chat_templates/tool_use.jinja".
std::vector<std::string> template_files(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(directory / kTemplateFolder, error), end; !error && at != end;
       at.increment(error)) {
    if (at->path().extension() == ".jinja")
      names.push_back(concat(kTemplateFolder, "/", at->path().filename().string()));
  }
  std::ranges::sort(names);
  return names;
}

int64_t bytes_of(const TensorSources::value_type& item) {
  return static_cast<int64_t>(tensor_bytes(item.second.dtype, item.second.shape, item.first));
}

// Fills shards one after another, in the order of names. A tensor that is larger than a shard gets its own.
std::vector<TensorSources> split_into_shards(const TensorSources& tensors, int64_t max_bytes) {
  std::vector<TensorSources> shards(1);
  int64_t used = 0;
  for (const auto& item : tensors) {
    const int64_t bytes = bytes_of(item);
    if (!shards.back().empty() && bytes > max_bytes - used) {
      shards.emplace_back();
      used = 0;
    }
    shards.back().insert(item);
    used += bytes;
  }
  return shards;
}

std::string shard_name(size_t index, size_t count) {
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return name;
}

nlohmann::json index_of(const std::vector<TensorSources>& shards) {
  nlohmann::json weight_map = nlohmann::json::object();
  int64_t total_bytes = 0, total_parameters = 0;
  for (size_t i = 0; i < shards.size(); i++) {
    for (const auto& item : shards[i]) {
      weight_map[item.first] = shard_name(i, shards.size());
      total_bytes += bytes_of(item);
      total_parameters += bytes_of(item) / static_cast<int64_t>(dtype_size(item.second.dtype));
    }
  }
  return {{"metadata", {{"total_parameters", total_parameters}, {"total_size", total_bytes}}},
          {"weight_map", std::move(weight_map)}};
}

bool is_weights_name(const std::string& name) {
  const bool is_shard = name.starts_with("model-") && name.ends_with(".safetensors") &&
                        name.size() == shard_name(0, 1).size() && name.substr(11, 4) == "-of-";
  return is_shard || name == kSingleFile || name == kIndexFile;
}

// Removes weight files of an earlier save that have names that this save does not use.
void remove_others(const fs::path& directory, const std::vector<std::string>& written) {
  std::vector<fs::path> others;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    const bool is_ours = std::find(written.begin(), written.end(), name) != written.end();
    if (!is_ours && is_weights_name(name)) others.push_back(entry.path());
  }
  for (const fs::path& path : others) delete_entry(path);
}

}  // namespace

std::vector<std::string> write_model_weights(const fs::path& directory, const TensorSources& tensors,
                                             int64_t max_shard_bytes) {
  const std::vector<TensorSources> shards = split_into_shards(tensors, max_shard_bytes);
  std::vector<std::string> written;
  if (shards.size() == 1) {
    write_safetensors(directory / kSingleFile, tensors);
    written = {kSingleFile};
  } else {
    // The index of an earlier save goes first, so that nobody reads a mixture of its shards and the new ones.
    delete_entry(directory / kIndexFile);
    for (size_t i = 0; i < shards.size(); i++) {
      written.push_back(shard_name(i, shards.size()));
      write_safetensors(directory / written.back(), shards[i]);
    }
    write_json(directory / kIndexFile, index_of(shards));
    written.push_back(kIndexFile);
  }
  remove_others(directory, written);
  return written;
}

void fill_model_weights(const fs::path& directory, const TensorSources& of_modules) {
  TensorSources tensors = of_modules;
  if (has_stored_names(directory)) tensors = as_stored(read_model_weights(directory), of_modules);
  std::map<std::string, TensorSources> by_file;
  if (fs::exists(directory / kSingleFile)) {
    by_file[kSingleFile] = tensors;
  } else {
    const nlohmann::json index = read_json_object(directory / kIndexFile);
    for (const auto& item : tensors) {
      const auto found = index.at("weight_map").find(item.first);
      const auto file = found != index.at("weight_map").end() && found->is_string()
                            ? CheckedName::file(found->get_ref<const std::string&>())
                            : std::nullopt;
      if (!file)
        throw FormatError(concat(directory.string(), ": no file has room for the tensor '", item.first, "'"));
      by_file[file->text()].insert(item);
    }
  }
  for (const auto& [file, sources] : by_file)
    if (!sources.empty()) fill_safetensors(directory / file, sources);
}

std::vector<std::string> copy_tokenizer_files(const fs::path& from, const fs::path& to) {
  std::vector<std::string> names(std::begin(kTokenizerFiles), std::end(kTokenizerFiles));
  for (std::string& name : template_files(from)) names.push_back(std::move(name));
  return copy_files(names, from, to);
}

void remove_other_companions(const fs::path& directory, const std::vector<std::string>& written) {
  std::vector<std::string> names(std::begin(kTokenizerFiles), std::end(kTokenizerFiles));
  names.insert(names.end(), std::begin(kOtherFiles), std::end(kOtherFiles));
  for (std::string& name : template_files(directory)) names.push_back(std::move(name));
  for (const std::string& name : names) {
    if (std::ranges::find(written, name) == written.end()) delete_entry(directory / name);
  }
  std::error_code ignored;
  fs::remove(directory / kTemplateFolder, ignored);  // if it is empty
}

void remove_chat_templates(const fs::path& directory) {
  for (const std::string& name : template_files(directory)) delete_entry(directory / name);
  std::error_code ignored;
  fs::remove(directory / kTemplateFolder, ignored);
  delete_entry(directory / "chat_template.json");  // read by processors
  delete_entry(directory / "chat_template.jinja");
}

std::vector<std::string> replace_chat_template(const fs::path& directory, const std::string& text) {
  remove_chat_templates(directory);
  write_atomically(directory / "chat_template.jinja", text);
  std::vector<std::string> written{"chat_template.jinja"};
  const fs::path config = directory / "tokenizer_config.json";
  if (!fs::exists(config)) return written;
  nlohmann::ordered_json changed = read_ordered_json_object(config);
  changed["chat_template"] = text;
  write_json(config, changed);
  written.emplace_back("tokenizer_config.json");
  return written;
}

std::vector<std::string> copy_companion_files(const fs::path& from, const fs::path& to) {
  std::vector<std::string> copied = copy_tokenizer_files(from, to);
  for (std::string& name : copy_files({std::begin(kOtherFiles), std::end(kOtherFiles)}, from, to))
    copied.push_back(std::move(name));
  return copied;
}

void copy_files_of_other_half(const fs::path& from, const fs::path& to) {
  if (is_whole_model(from)) copy_files(other_files(from), from, to);
}

}  // namespace trainer
