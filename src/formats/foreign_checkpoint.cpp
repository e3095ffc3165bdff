#include "formats/foreign_checkpoint.h"

#include <algorithm>
#include <array>
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
