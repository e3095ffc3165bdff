// Which files of a model are needed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "hub/cache.h"
#include "hub/fetch.h"

namespace trainer::hub {

// Of a model or an adapter: its configuration; also its tokenizer; also its weights. Weights come last.
// Pickled weights are never among them.
std::vector<RemoteFile> choose_model_files(const Listing& listing, ModelParts parts);

// Whether these files are all that `parts` needs: for snapshots of which no list was kept. `has`: whether a
// file of this name is there. `index`: the content of model.safetensors.index.json, or "".
bool is_complete_model(const std::function<bool(const std::string&)>& has, const std::string& index,
                       ModelParts parts);

// Whether its weights are only in pickled files.
bool has_only_pickles(const Listing& listing);

}  // namespace trainer::hub
