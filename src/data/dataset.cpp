#include "trainer/data/dataset.h"

#include <algorithm>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/checksum.h"
#include "base/random.h"
#include "data/chat_encoder.h"
#include "data/data_files.h"
#include "data/dataset_state.h"

namespace trainer {

namespace {

Sample weighed(Sample sample, float weight) {
  if (weight == 1) return sample;
  if (sample.weights.empty()) sample.weights.assign(sample.labels.size(), 1.0F);
  for (float& each : sample.weights) each *= weight;
  return sample;
}

}  // namespace

Dataset Dataset::open_part(const std::vector<DataSource>& sources, const RowChoice& choice,
                           const Config& config, const Tokenizer& tokenizer, bool encoder_decoder) {
  if (sources.empty()) throw DataError("data.train: no data files are given");
  auto state = std::make_shared<State>();
  state->config = config.data;
  if (config.objective.compares() && config.data.kind == DataKind::automatic)
    state->config.kind = config.objective.judges() ? DataKind::feedback : DataKind::preference;
  if (config.objective.classifies()) state->config.kind = DataKind::classification;
  if (config.objective.embeds()) state->config.kind = DataKind::pairs;
  state->config.labels.score = config.objective.row_score();
  if (state->config.labels.classes.empty()) state->config.labels.classes = config.objective.labels;
  state->objective = config.objective;
  state->model = chat_template_directory(config);
  state->tokenizer = &tokenizer;
  state->encoder_decoder = encoder_decoder;
  state->num_workers = config.training.num_workers;
  state->seed = static_cast<uint64_t>(config.seed);
  state->name = names_of(sources);
  if (choice.part == RowChoice::Part::held_out)
    state->name = concat(choice.held_out, " held out of ", state->name);
  state->open(sources, choice);
  return Dataset(state);
}

Dataset Dataset::open(const std::vector<DataSource>& sources, const Config& config,
                      const Tokenizer& tokenizer, bool encoder_decoder) {
  return open_part(sources, {}, config, tokenizer, encoder_decoder);
}

Dataset Dataset::open_train(const Config& config, const Tokenizer& tokenizer, bool encoder_decoder) {
  const double held_out = config.data.eval.held_out;
  const auto part = held_out > 0 ? RowChoice::Part::kept : RowChoice::Part::all;
  Dataset opened = open_part(config.data.train, {part, held_out, {}}, config, tokenizer, encoder_decoder);
  opened.state_->check_labels();
  return opened;
}

Dataset Dataset::open_eval(const Config& config, const Tokenizer& tokenizer, bool encoder_decoder) {
  const EvalData& eval = config.data.eval;
  if (eval.held_out == 0) return open(eval.sources, config, tokenizer, encoder_decoder);
  return open_part(config.data.train, {RowChoice::Part::held_out, eval.held_out, {}}, config, tokenizer,
                   encoder_decoder);
}

const std::string& Dataset::name() const { return state_->name; }
int64_t Dataset::size() const { return state_->size / state_->sides; }
int64_t Dataset::sides() const { return state_->sides; }
const std::vector<SampleSet>& Dataset::sets() const { return state_->sets; }
bool Dataset::encoder_decoder() const { return state_->encoder_decoder; }

Sample Dataset::sample(int64_t index, int64_t side, int64_t epoch) const {
  if (state_->sides > 1) return std::move(samples(index).at(static_cast<size_t>(side)));
  const uint64_t noise = derive(derive(state_->seed, "noise"), static_cast<uint64_t>(epoch));
  const Part& part = state_->part_of(index);
  if (const auto ids = part.index.piece(index - part.first_sample)) {
    part.file.check_unchanged();
    return weighed(state_->encoder->from_kept(*ids, noise), part.loss_weight);
  }
  return state_->read(index, [&](const RowParser& row, const IndexedSample& entry) {
    ReadRow read = state_->encoder->read(row);
    read.noise = noise;
    std::vector<EncodedSample> samples = state_->encoder->encode(read);
    if (entry.piece >= samples.size()) throw DataError("the row gives fewer samples");
    return weighed(std::move(samples[entry.piece].sample), part.loss_weight);
  });
}

std::vector<Sample> Dataset::samples(int64_t index, int64_t epoch) const {
  std::vector<Sample> samples;
  if (state_->sides == 1) samples.push_back(sample(index, 0, epoch));
  if (state_->sides > 1) {
    state_->read(index * state_->sides, [&](const RowParser& row, const IndexedSample&) {
      for (EncodedSample& side : state_->encoder->encode(state_->encoder->read(row)))
        samples.push_back(std::move(side.sample));
    });
  }
  for (int64_t side = 0; references_ && side < state_->sides; side++)
    samples[static_cast<size_t>(side)].reference =
        references_->at(static_cast<size_t>(index * state_->sides + side));
  if (logits_) samples.front().teacher = teacher_of(samples.front(), index);
  return samples;
}

Dataset::Texts Dataset::texts(int64_t index) const {
  const RowEncoder& encoder = *state_->encoder;
  return state_->read(index * state_->sides, [&](const RowParser& row, const IndexedSample&) {
    return encoder.texts(encoder.read(row));
  });
}

Dataset::Lengths Dataset::lengths(int64_t index, int64_t side) const {
  const IndexedSample& entry = state_->entry(index * state_->sides + side);
  return {entry.input_tokens, entry.target_tokens};
}

uint64_t Dataset::content(int64_t index) const { return state_->entry(index * state_->sides).content; }
uint64_t Dataset::input(int64_t index) const { return state_->entry(index * state_->sides).input; }
bool Dataset::begins_row(int64_t index) const { return state_->entry(index * state_->sides).piece == 0; }
std::optional<int32_t> Dataset::end_of_answer() const { return state_->encoder->end_of_answer(); }
bool Dataset::has_chat_template() const { return state_->encoder->has_chat_template(); }

Dataset::Checksums Dataset::checksums() const {
  RunningChecksum samples, pieces;
  bool keeps_pieces = false;
  for (const Part& part : state_->parts) keeps_pieces = part.index.add_to(samples, pieces) || keeps_pieces;
  return {samples.digits(), keeps_pieces ? pieces.digits() : "", checksum(state_->form())};
}

std::vector<int32_t> Dataset::prompt(int64_t index) const {
  const RowEncoder& encoder = *state_->encoder;
  return state_->read(index * state_->sides, [&](const RowParser& row, const IndexedSample&) {
    return encoder.prompt(encoder.read(row));
  });
}

const DataReport& Dataset::report() const { return state_->report; }
std::string Dataset::origin(int64_t index) const { return state_->origin(index * state_->sides); }

void Dataset::for_each_skipped_row(const std::function<void(const SkippedRow&)>& visit) const {
  for (const Part& part : state_->parts) {
    if (part.index.summary().problems.empty()) continue;
    const std::shared_ptr<const MappedFile> content = part.file.map();
    for (const BadRow& bad : part.index.summary().problems) {
      const size_t shown = std::min<size_t>(bad.length, 200);
      visit({part.file.shown().string(), bad.line, bad.problem, content->text().substr(bad.offset, shown)});
    }
  }
}

}  // namespace trainer
