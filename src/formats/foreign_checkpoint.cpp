#include "formats/foreign_checkpoint.h"

#include <algorithm>
#include <array>
#include <functional>
#include <vector>

#include "trainer/base/strings.h"
#include "trainer/formats/checkpoint.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

// Files that only one program writes. A name that ends in * begins like that.
struct Trace {
  const char *program, *file;
};
constexpr std::array<Trace, 22> kTraces{{{"DeepSpeed", "zero_to_fp32.py"},
                                         {"DeepSpeed", "mp_rank_*"},
                                         {"DeepSpeed", "zero_pp_rank_*"},
                                         {"DeepSpeed", "global_step*"},
                                         {"Megatron", "latest_checkpointed_iteration.txt"},
                                         {"PyTorch's distributed checkpoints", "__0_0.distcp"},
                                         {"PyTorch's distributed checkpoints", "pytorch_model_fsdp*"},
                                         {"torchtune", "recipe_state*"},
                                         {"torchtune", "torchtune_config.yaml"},
                                         {"Hugging Face's Trainer", "training_args.bin"},
                                         {"Hugging Face's Trainer", "optimizer.pt"},
                                         {"Hugging Face's Trainer", "scheduler.pt"},
                                         {"Hugging Face's Trainer", "rng_state*"},
                                         {"Hugging Face's Trainer", "scaler.pt"},
                                         {"Hugging Face's Accelerate", "random_states_*"},
                                         {"Hugging Face's Accelerate", "optimizer.bin"},
                                         {"Hugging Face's Accelerate", "scheduler.bin"},
                                         {"PyTorch", "optim.pt"},
                                         {"PyTorch", "optimizer.pth"},
                                         {"nanoGPT", "ckpt.pt"},
                                         {"MLX", "adapters.safetensors"},
                                         {"JAX", "_CHECKPOINT_METADATA"}}};

bool is_named(const std::string& name, std::string_view pattern) {
  return pattern.ends_with('*') ? name.starts_with(pattern.substr(0, pattern.size() - 1)) : name == pattern;
}

std::vector<std::string> names_in_directory(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename().string());
  std::ranges::sort(names);
  return names;
}

}  // namespace

std::string foreign_program(const fs::path& directory) {
  std::error_code ignored;
  if (fs::exists(directory / kManifestFile, ignored)) return "";
  const std::vector<std::string> names = names_in_directory(directory);
  for (const auto& [program, file] : kTraces) {
    const auto found = std::ranges::find_if(
        names, [&, &file = file](const std::string& name) { return is_named(name, file); });
    if (found != names.end()) return concat(program, " (", *found, ")");
  }
  for (const std::string& name : names) {
    if (name.ends_with(".ckpt")) return concat("Lightning (", name, ")");
  }
  return "";
}

namespace {

bool has_digit(std::string_view text) { return text.find_first_of("0123456789") != std::string_view::npos; }

bool holds_weights(const std::vector<std::string>& names) {
  return std::ranges::any_of(names, [](const std::string& name) {
    return std::ranges::any_of(std::array{".safetensors", ".pt", ".pth", ".bin"},
                               [&](const char* ending) { return name.ends_with(ending); });
  });
}

// The program whose checkpoints have such names; "" for other names.
std::string program_of_name(std::string_view name) {
  if (!has_digit(name)) return "";
  if (name.starts_with("epoch_")) return "torchtune";
  if (name.starts_with("step_")) return "Hugging Face's Accelerate";
  if (name.starts_with("global_step")) return "DeepSpeed";
  return name.starts_with("iter_") ? "Megatron" : "";
}

std::string digits_of(const std::string& name) {
  std::string digits;
  for (const char c : name) {
    if (c >= '0' && c <= '9') digits += c;
  }
  return std::string(20 - std::min<size_t>(digits.size(), 20), '0') + digits;
}

// Lightning keeps its files in DIRECTORY, DIRECTORY/checkpoints, or lightning_logs/version_N/checkpoints.
std::optional<fs::path> lightning_file(const fs::path& directory, int levels) {
  for (const std::string& name : names_in_directory(directory)) {
    if (name.ends_with(".ckpt")) return directory / name;
    const bool is_its_folder =
        name == "checkpoints" || name == "lightning_logs" || name.starts_with("version_");
    if (!is_its_folder || levels == 0) continue;
    if (const auto found = lightning_file(directory / name, levels - 1)) return found;
  }
  return std::nullopt;
}

}  // namespace

std::optional<ForeignCheckpoint> foreign_checkpoint_in(const fs::path& directory) {
  std::vector<std::string> names = names_in_directory(directory);
  std::erase_if(names, [](const std::string& name) { return program_of_name(name).empty(); });
  std::ranges::stable_sort(names, std::greater{}, digits_of);
  std::error_code ignored;
  for (const std::string& name : names) {
    const fs::path path = directory / name;
    const std::vector<std::string> inside = names_in_directory(path);
    if (!fs::is_directory(path, ignored) || std::ranges::find(inside, kManifestFile) != inside.end())
      continue;
    const std::string shown = foreign_program(path);
    if (shown.empty() && !holds_weights(inside)) continue;
    return ForeignCheckpoint{
        path, concat(name, " of another program, ", shown.empty() ? program_of_name(name) : shown)};
  }
  if (const auto file = lightning_file(directory, 3))
    return ForeignCheckpoint{
        directory, concat(file->lexically_relative(directory).string(), " of another program, Lightning")};
  return std::nullopt;
}

std::string how_to_start_from(const fs::path& directory) {
  const std::vector<std::string> names = names_in_directory(directory);
  const auto has = [&](std::string_view name) { return std::ranges::find(names, name) != names.end(); };
  const bool has_weights = std::ranges::any_of(names, [](const std::string& name) {
    return name.starts_with("model") && name.ends_with(".safetensors");
  });
  if (has("adapter_config.json") && has("adapter_model.safetensors"))
    return "give it as lora.adapter to start from its adapter";
  if (has("config.json") && has_weights) return "give it as model.path to start from its weights";
  return "it has no weights that can be read; to start from them, save them with that program as a Hugging "
         "Face "
         "model (config.json and safetensors), and give that as model.path";
}

}  // namespace trainer
