// Downloads files of a repository into the cache.
#pragma once

#include <vector>

#include "hub/cache.h"
#include "hub/name.h"
#include "hub/settings.h"

namespace trainer::hub {

// Small files at once, then large ones one after the other, each in parallel ranges; in the given order.
// Shows progress. Throws HubError, net::NetworkError or FormatError. What is complete by then, and what can
// be resumed, stays.
void download_files(const Settings& settings, const Name& name, const CachedRepository& repository,
                    const CheckedName& commit, const std::vector<RemoteFile>& files);

}  // namespace trainer::hub
