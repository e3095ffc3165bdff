// Models and data sets by name: from the cache of Hugging Face, or downloaded into it (docs/model-names.md).
// The environment variables of huggingface_hub apply: HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_TOKEN,
// HF_HUB_OFFLINE, ...
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "hub/name.h"

namespace trainer::hub {

enum class ModelParts { config, tokenizer, all };  // each with those before it
enum class Split { train, eval, any };

struct FetchOptions {
  bool from_cache_only = false;  // as with HF_HUB_OFFLINE
  // Asks the hub what the revision stands for now; else what the cache has of it is taken.
  bool refresh = false;
  std::optional<std::filesystem::path> token_file;
};

// Returns the folder of the model or adapter. Throws an Error with ExitCode::files that says what to do: an
// unknown or gated name, no network, no room, ...
std::filesystem::path fetch_model(const Name& name, ModelParts parts, const FetchOptions& options = {});

// Returns the files of the data set, sorted by name: those of `name.path`, or the split. Throws Error, as
// fetch_model.
std::vector<std::filesystem::path> fetch_data(const Name& name, Split split,
                                              const FetchOptions& options = {});

// The folder of the snapshot that the cache has of the name, complete or not; "" if there is none.
std::filesystem::path cached_snapshot(const Name& name);

// A local directory as it is, else what fetch_model returns for the name; any other text as it is.
std::filesystem::path resolve_model(const std::string& path_or_name, ModelParts parts);

}  // namespace trainer::hub
