// Which weights an adapter is merged onto, and which it was trained on.
#pragma once

#include <optional>
#include <string>

#include "trainer/export/export_model.h"

#include "adapters/merged_model.h"
#include "export/compare_logits.h"

namespace trainer {

struct MergeSources {
  MergeOptions options;
  LogitsSource merged;                  // what is merged
  std::optional<LogitsSource> trained;  // the model on quantised weights that was trained, if it was
  std::string trained_in;               // the name of their format
  bool trained_is_merged = false;       // both are the same
};

// Logs what is merged onto which weights where they are quantised. Throws ConfigError for options that do not
// go together with this source.
MergeSources find_merge_sources(const ExportRequest& request, const std::filesystem::path& source);

}  // namespace trainer
