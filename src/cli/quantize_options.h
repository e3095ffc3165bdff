// The options about quantised weights that `trainer export` and `trainer merge` share.
#pragma once

#include <memory>

#include <CLI/CLI.hpp>

#include "commands/entry_points.h"

namespace trainer::cli {

void add_quantize_options(CLI::App& command, const std::shared_ptr<ExportOptions>& options);

}  // namespace trainer::cli
