// What a reference says of the answers of a data set, where it was computed before.
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/data/dataset.h"

#include "data/dataset_state.h"
#include "data/stored_logits.h"

namespace trainer {

void Dataset::set_references(std::vector<double> references) {
  references_ = std::make_shared<const std::vector<double>>(std::move(references));
}

void Dataset::set_references_of_others(std::map<RowPair, double> references) {
  references_of_others_ = std::make_shared<const std::map<RowPair, double>>(std::move(references));
}

void Dataset::set_logits(std::shared_ptr<const StoredLogits> logits) { logits_ = std::move(logits); }

TeacherTokens Dataset::teacher_of(const Sample& sample, int64_t index) const {
  if (auto found = logits_->of(sample, index, state_->encoder_decoder)) return std::move(*found);
  const std::vector<std::string>& others = logits_->other_settings();
  throw DataError(
      concat(origin(index), ": ", logits_->name(), " has no row with these tokens; ",
             others.empty()
                 ? "what a teacher says fits rows that become the same tokens as they did for it: the same "
                   "data, chat template, data.max_length and data.loss_on"
                 : concat("it was made with other settings: ", join(others, "; "))));
}

std::optional<double> Dataset::reference_of_other(const RowPair& pair) const {
  if (!references_of_others_) return std::nullopt;
  const auto found = references_of_others_->find(pair);
  return found == references_of_others_->end() ? std::nullopt : std::optional(found->second);
}

std::vector<double> Dataset::references_of_others(const std::vector<int64_t>& rows) const {
  std::vector<double> values;
  for (size_t i = 0; references_of_others_ && i < rows.size(); i++) {
    const auto value = reference_of_other({rows[i], i == 0 ? rows.back() : rows[i - 1]});
    if (!value) return {};
    values.push_back(*value);
  }
  return values;
}

}  // namespace trainer
