// trainer merge: an adapter into its base model.
#include "trainer/models/merge.h"

#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/cli/core.h"

#include "cli/core/with_clear_errors.h"

namespace trainer {
namespace {

void run_merge(const MergeOptions& options) {
  std::optional<Dtype> dtype;
  if (options.dtype == "bf16") dtype = Dtype::bf16;
  if (options.dtype == "fp32") dtype = Dtype::f32;
  const MergeReport report = merge_model(options.source, options.out, dtype);
  std::string text = concat(bytes_string(report.bytes), " written to ", options.out);
  if (report.merged + report.replaced > 0) {
    text = concat("merged: ", report.merged, " tensors changed, ", report.replaced, " replaced; ", text);
  }
  if (report.untied) text += "; the head is now a tensor of its own, lm_head.weight";
  log::info(text);
}

}  // namespace
}  // namespace trainer

extern "C" void trainer_core_merge(const trainer::MergeOptions& options) {
  trainer::with_clear_errors("What helps: a machine with more memory, or programs on this one that end.",
                             [&] { trainer::run_merge(options); });
}
