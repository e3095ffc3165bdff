#include "commands/classify.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/memory/batch_budget.h"
#include "trainer/models/score_head.h"
#include "trainer/training/evaluate.h"

#include "base/progress.h"
#include "data/label_encoder.h"
#include "formats/sentence_files.h"
#include "training/evaluate_labels.h"

namespace trainer {
namespace {

Config config_of(const OpenModel& opened, const GenerateOptions& options, const ScoreHeadSpec& head,
                 c10::Device device) {
  Config config;
  config.data = options.data;
  config.data.kind = DataKind::classification;
  config.data.labels.score = head.score == RowScore::vector ? RowScore::number : head.score;
  config.data.labels.required = false;
  // As sentence-transformers: an export has no other word on how long a text may be.
  if (const auto longest = longest_sentence(opened.base);
      longest && head.score == RowScore::vector && opened.adapter.empty())
    config.data.max_length = *longest;
  if (has_classes(head.score)) config.data.labels.classes = head.labels;
  config.objective.name = objective_of(head.score);
  config.training.batch_size = options.batch_size;
  settle_packing(config, *opened.model, device.type());
  return config;
}

Sample sample_of_row(const PlacedRow& placed, const OpenModel& opened, const DataConfig& data,
                     std::unique_ptr<LabelEncoder>& encoder) {
  try {
    RowParser parser;
    const std::string json = placed.row.dump();
    parser.parse(json, 0);
    if (!encoder)
      encoder = make_label_encoder(data, opened.chat.string(), parser, *opened.tokenizer,
                                   opened.model->encoder_decoder());
    ReadRow row = encoder->read(parser);
    row.texts.target.clear();
    for (ReadRow& word : row.sides) word.texts.target.clear();
    row.weight = 1;
    return std::move(encoder->encode(row).front().sample);
  } catch (const DataError& error) {
    throw DataError(concat(placed.where, ": ", error.what()));
  }
}

std::vector<double> of_length_one(std::vector<double> vector) {
  double squares = 0;
  for (const double value : vector) squares += value * value;
  for (double& value : vector) value /= std::sqrt(std::max(squares, 1e-24));
  return vector;
}

// A word has as many outputs as there are classes.
Row tags_of(const std::vector<double>& scores, const ScoreHeadSpec& head) {
  Row tags = Row::array();
  for (size_t first = 0; first < scores.size(); first += head.labels.size()) {
    const auto begin = scores.begin() + static_cast<std::ptrdiff_t>(first);
    const auto most = std::max_element(begin, begin + head.outputs());
    tags.push_back(head.labels[static_cast<size_t>(most - begin)]);
  }
  return tags;
}

Row answered(Row row, const std::vector<double>& scores, const ScoreHeadSpec& head) {
  if (head.score == RowScore::tags) {
    row["prediction"] = tags_of(scores, head);
  } else if (head.score == RowScore::vector) {
    row["embedding"] = of_length_one(scores);
  } else if (head.score == RowScore::label) {
    const std::vector<double> shares = probabilities_of(scores);
    row["prediction"] = head.labels[static_cast<size_t>(std::ranges::max_element(shares) - shares.begin())];
    row["probabilities"] = Row::object();
    for (size_t at = 0; at < shares.size(); at++) row["probabilities"][head.labels[at]] = shares[at];
  } else {
    row["prediction"] = scores.front();
  }
  return row;
}

}  // namespace

void classify(const OpenModel& opened, std::vector<PlacedRow> rows, const GenerateOptions& options,
              c10::Device device, std::ostream& out) {
  if (opened.model->head().scores() == nullptr)
    throw ConfigError(concat("generate: --classify: ", options.model,
                             " writes texts and scores none; train it with objective.name=classification"));
  const ScoreHeadSpec head = *score_head_in(opened.model->config());
  Config config = config_of(opened, options, head, device);
  for (const std::string& text : options.prompts) {
    config.data.input = "text";
    rows.push_back({Row{{"text", text}}, concat("text ", rows.size() + 1)});
  }
  std::unique_ptr<LabelEncoder> encoder;
  BatchBudget budget;
  const RecoveryListener no_listener;
  const std::function<void()> nothing;
  ScorePasses passes(*opened.model, config, device, budget, no_listener, nothing);
  Progress shown("texts", std::ssize(rows));
  const auto group = static_cast<size_t>(16 * options.batch_size);  // sorted by length within a group
  for (size_t first = 0; first < rows.size(); first += group) {
    EffectiveBatch batch;
    for (size_t at = first; at < std::min(first + group, rows.size()); at++)
      batch.samples.push_back(sample_of_row(rows[at], opened, config.data, encoder));
    const std::vector<std::vector<double>> scores = passes.scores(batch);
    for (size_t slot = 0; slot < scores.size(); slot++) {
      const Row row = answered(std::move(rows[first + slot].row), scores[slot], head);
      out << row.dump(-1, ' ', false, Row::error_handler_t::replace) << '\n';
    }
    shown.add(std::ssize(scores));
  }
  out << std::flush;
}

}  // namespace trainer
