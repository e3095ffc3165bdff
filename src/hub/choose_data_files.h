// Which files of a data set are needed.
#pragma once

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

}  // namespace trainer::hub
