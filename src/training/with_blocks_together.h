// Work of all ranks in which models run.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trainer/models/model.h"
#include "trainer/parallel/ranks.h"

namespace trainer {

// As together(). With parallel.shard: all, a rank whose work is done, or has failed, gives the others weights
// until theirs is done, too.
std::vector<std::string> with_blocks_together(const Model& model, const Ranks& ranks,
                                              const std::function<std::string()>& work,
                                              Channel channel = Channel::steps);

}  // namespace trainer
