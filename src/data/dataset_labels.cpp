// The labels of a data set: which classes there are, how many rows each has, and what each weighs.
#include <algorithm>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/text.h"
#include "data/dataset_state.h"
#include "data/label_encoder.h"

namespace trainer {
namespace {

std::vector<double> weights_of(const ObjectiveConfig& objective, const LabelCounts& counts) {
  if (!objective.balance_classes && objective.class_weights.empty()) return {};
  std::vector<double> weights;
  for (const auto& [name, rows] : counts.classes) {
    const auto balanced = static_cast<double>(counts.rows) /
                          static_cast<double>(std::max<int64_t>(rows, 1) * std::ssize(counts.classes));
    weights.push_back(objective.balance_classes && rows > 0 ? balanced : 1.0);
  }
  for (const auto& [name, weight] : objective.class_weights) {
    const auto of_name = std::ranges::find(counts.classes, name, &std::pair<std::string, int64_t>::first);
    if (of_name == counts.classes.end()) {
      std::vector<std::string> names;
      for (const auto& [known, rows] : counts.classes) names.push_back(known);
      throw ConfigError(concat("objective.class_weights: '", name, "' is none of the ", names.size(),
                               " classes: ", join_some(names)));
    }
    weights[static_cast<size_t>(of_name - counts.classes.begin())] *= weight;
  }
  return weights;
}

}  // namespace

void Dataset::State::settle_labels(const std::vector<RowFile>& files, const RowChoice& choice) {
  auto* labelled = dynamic_cast<LabelEncoder*>(encoder.get());
  if (labelled == nullptr) return;
  label_counts = labelled->settle(files, choice, num_workers);
  if (labelled->labels().weights.empty()) labelled->set_weights(weights_of(objective, *label_counts));
  labels = labelled->labels();
}

void Dataset::State::check_labels() const {
  if (!label_counts || label_counts->rows == 0) return;
  const auto used =
      std::ranges::count_if(label_counts->classes, [](const auto& of) { return of.second > 0; });
  constexpr int64_t kFew = 20;
  if (used > kFew && 2 * used > label_counts->rows)
    throw of_family(ErrorCode::data_fields,
                    DataError(concat(
                        name, ": ", grouped(used), " different labels in ", grouped(label_counts->rows),
                        " rows are no classes; rows that teach answers are for objective.name=sft, and other "
                        "fields can be named with data.input and data.target")));
  if (!label_counts->all_equal) return;
  throw of_family(ErrorCode::data_empty,
                  DataError(concat(name, ": all ", grouped(label_counts->rows), " rows have the label \"",
                                   label_counts->first, "\", so there is nothing to tell apart")));
}

RowLabels Dataset::labels() const { return state_->labels; }

}  // namespace trainer
