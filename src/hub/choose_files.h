// The choice of the files that are needed of a data set or a model.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "hub/cache.h"
#include "hub/data_card.h"
#include "hub/fetch.h"

namespace trainer::hub {

// Returns the file, folder, subset or pattern `name.path`, or all data files; those of the split that is
// meant. What `subsets` say of a split counts, else the names of the files. Throws DataError if there are
// none, or if it is not clear which are meant.
std::vector<RemoteFile> choose_data_files(const Name& name, const Listing& listing, Split split,
                                          const std::vector<Subset>& subsets = {});

// Returns whether subsets count: not for a file or a pattern.
bool depends_on_subsets(const Name& name, const Listing& listing);

inline constexpr const char* kIndex = "model.safetensors.index.json";

struct ChosenFiles {
  std::vector<RemoteFile> files;
  std::vector<std::string> missing;  // files that the index names and the repository does not have
};

// Returns the files of a model or an adapter: its configuration; also its tokenizer; also its weights.
// Weights come last. Pickled weights are never among them. `index`: the content of
// model.safetensors.index.json, which says which files have the weights; "": it is not known, and names of
// files say it. Throws FormatError with the reason for an index that is none.
ChosenFiles choose_model_files(const Listing& listing, ModelParts parts, const std::string& index);

// Returns whether weights are among them, and the index of those that are of no use without it.
bool have_weights(const std::vector<RemoteFile>& files);

// Returns the files that an index names, in the order of their names. Throws FormatError with the reason.
std::vector<CheckedName> files_in_index(const std::string& index);

// Returns whether these files are all that `parts` needs, for snapshots without a list. `has`: whether a file
// of this name is there. `index`: as above.
bool is_complete_model(const std::function<bool(const std::string&)>& has, const std::string& index,
                       ModelParts parts);

// Returns whether the model's weights are only in pickled files.
bool has_only_pickles(const Listing& listing);

}  // namespace trainer::hub
