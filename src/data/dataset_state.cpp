#include "data/dataset_state.h"

#include <algorithm>
#include <bit>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/base/version.h"

#include "base/checksum.h"
#include "base/progress.h"
#include "data/cache_folder.h"
#include "data/data_files.h"
#include "data/report_fields.h"
#include "data/report_words.h"
#include "data/text_encoder.h"
#include "data/unpack.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

// Sizes of files. Smaller files are read in a moment, so their index is not kept in the cache; reading larger
// files takes so long that a first look is worth it.
constexpr size_t kWorthKeeping = size_t{4} << 20, kWorthALook = size_t{64} << 20;

// More indexes are read into memory: the system maps only so many files (vm.max_map_count).
constexpr size_t kMappedIndexes = 8192;

}  // namespace

void Dataset::State::open(const std::vector<DataSource>& sources, const RowChoice& choice) {
  const fs::path cache = cache_folder(config.cache);
  const UsedColumns used = used_columns(config);
  std::vector<fs::path> paths;
  std::vector<size_t> files_of_source;
  for (const DataSource& source : sources) {
    const std::vector<fs::path> found = data_files(source);
    paths.insert(paths.end(), found.begin(), found.end());
    files_of_source.push_back(found.size());
  }
  if (config.bad_rows == BadRows::error)
    encoder = check_columns(paths, cache, used, config, model, *tokenizer, encoder_decoder);
  std::vector<RowFile> files;
  for (const fs::path& path : paths) files.push_back(RowFile::open(unpacked(path, cache, used), path));
  if (!encoder) make_encoder(files);
  settle_labels(files, choice);
  sides = encoder->sides();
  take_a_look(files, choice);
  auto file = files.begin();
  for (size_t i = 0; i < sources.size(); i++) {
    const int64_t before = size;
    for (size_t n = 0; n < files_of_source[i]; n++, file++) {
      RowChoice rest = choice;
      if (config.max_samples) rest.max_samples = *config.max_samples * sides - (size - before);
      if (rest.max_samples == 0) continue;
      RowIndex index = index_of(*file, rest);
      const int64_t samples = index.size();
      parts.push_back({std::move(*file), std::move(index), size, static_cast<float>(sources[i].loss_weight)});
      size += samples;
    }
    if (size > before) sets.push_back(set_of(before, sources[i].weight));
  }
  report = described(report_of(parts));
  if (config.bad_rows == BadRows::error) refuse_bad_rows();
  in_family(ErrorCode::data_empty, [&] { check_samples(choice); });
}

// Builds the encoder from the first row that can be parsed. With data.bad_rows: skip, it is the first row
// whose fields can be interpreted. The other bad rows are reported later.
void Dataset::State::make_encoder(const std::vector<RowFile>& files) {
  std::exception_ptr first_problem;
  RowParser parser;
  for (const RowFile& file : files) {
    RowScanner scanner(file);
    for (RowSpan row; scanner.next(row);) {
      try {
        file.parse(parser, row);
      } catch (const DataError&) {
        continue;
      }
      try {
        encoder = make_row_encoder(config, model, parser, *tokenizer, encoder_decoder);
        return;
      } catch (const DataError& e) {
        const DataError problem(concat(file.place(row.offset), ": ", e.what()));
        if (config.bad_rows == BadRows::error) throw of_family(ErrorCode::data_fields, problem);
        if (!first_problem) first_problem = std::make_exception_ptr(problem);
      }
    }
  }
  if (first_problem) std::rethrow_exception(first_problem);
  // No row can be parsed; each of them will be reported.
  encoder =
      std::make_unique<TextEncoder>(Fields{DataKind::completion, "input", "target"}, config, *tokenizer);
}

// Logs a report on the first rows of some files if reading all of them takes a while. A user who sees a
// problem there need not wait for the rest.
void Dataset::State::take_a_look(const std::vector<RowFile>& files, const RowChoice& choice) const {
  constexpr size_t kFiles = 10;
  constexpr int64_t kSamples = 2000;
  constexpr uint64_t kBytes = 4 << 20;  // a row may be a whole book
  if (config.max_samples || choice.part == RowChoice::Part::held_out) return;
  size_t bytes = 0;
  std::error_code ignored;
  for (const RowFile& file : files) {
    const auto kept = kept_index(file, choice);
    if (!kept || !fs::exists(kept->path, ignored)) bytes += file.bytes();
  }
  if (bytes < kWorthALook) return;
  const Progress shown("a first look at the data");
  std::vector<Part> some;
  const size_t stride = (files.size() + kFiles - 1) / kFiles;
  RowChoice first = choice;
  const size_t looked_at = (files.size() + stride - 1) / stride;
  first.max_samples = kSamples / static_cast<int64_t>(looked_at);
  for (size_t i = 0; i < files.size(); i += stride)
    some.push_back(
        {files[i], build_index(files[i], *encoder, empty_survey(), {first, 1, {}, kBytes / looked_at}), 0});
  log::info(concat("data: a first look at ", name, " (all of it is read next):"));
  for (const std::string& line : described(report_of(some)).lines()) log::info("data:   " + line);
}

const Survey& Dataset::State::empty_survey() const {
  if (!survey) survey.emplace(*tokenizer, encoder->layout(), encoder->sides(), config.labels.score);
  return *survey;
}

RowIndex Dataset::State::index_of(const RowFile& file, const RowChoice& choice) const {
  const auto build = [&](const fs::path& path) {
    RowIndex index = build_index(file, *encoder, empty_survey(), {choice, num_workers, path});
    file.check_unchanged();
    return index;
  };
  const auto place = kept_index(file, choice);
  if (!place) return build({});
  const auto& [path, made_of] = *place;
  const bool mapped = parts.size() < kMappedIndexes;
  if (auto kept = RowIndex::open(path, made_of, mapped)) return std::move(*kept);
  RowIndex index = build(path);
  if (index.summary().bad_rows > 0 && config.bad_rows == BadRows::error) return index;
  try {
    index.save(path, made_of);
  } catch (const FormatError& e) {
    log::warning(concat("the index of ", file.shown().string(), " is kept in memory: ", e.what(),
                        "; set data.cache to another folder"));
    return index;
  }
  auto kept = RowIndex::open(path, made_of, mapped);
  return kept ? std::move(*kept) : std::move(index);
}

std::optional<KeptIndex> Dataset::State::kept_index(const RowFile& file, const RowChoice& choice) const {
  const bool is_small = config.cache.empty() && file.bytes() < kWorthKeeping;
  if (is_small || tokenizer->fingerprint().empty()) return std::nullopt;
  const std::string made_of = fingerprint(file, choice);
  return KeptIndex{cache_folder(config.cache) / "index" / (checksum(made_of) + ".index"), made_of};
}

std::string Dataset::State::fingerprint(const RowFile& file, const RowChoice& choice) const {
  return concat("program ", kVersion, " ", program_identity(), "\nfile ",
                content_fingerprint(file.map()->text(), file.identity()), "\n", form(), "\npart ",
                static_cast<int>(choice.part), " ", std::bit_cast<uint64_t>(choice.held_out), "\nfirst ",
                choice.max_samples.value_or(-1));
}

std::string Dataset::State::form() const {
  return concat("tokenizer ", tokenizer->fingerprint(), "\nencoder-decoder ", encoder_decoder, "\n",
                encoder->settings());
}

SampleSet Dataset::State::set_of(int64_t first_sample, double weight) const {
  SampleSet set{.samples = (size - first_sample) / sides, .weight = weight};
  for (const Part& part : parts) {
    if (part.first_sample < first_sample) continue;
    const DataReport counts = counts_from(part.index.summary().counts);
    set.tokens += counts.tokens();
    set.supervised_tokens += counts.supervised_tokens;
  }
  return set;
}

DataReport Dataset::State::described(DataReport counts) const {
  counts.name = name;
  counts.kind = encoder->kind();
  counts.layout = encoder->layout();
  counts.input_field = encoder->input_field();
  counts.target_field = encoder->target_field();
  counts.template_date = encoder->date();
  counts.in_bytes = tokenizer->tokens_are_bytes();
  if (label_counts) counts.labels = label_counts->classes;
  return counts;
}

void Dataset::State::refuse_bad_rows() const {
  if (report.malformed.count > 0) throw of_family(ErrorCode::data_row, DataError(report.malformed_text()));
}
void Dataset::State::check_samples(const RowChoice& choice) const {
  if (report.rows > 0 && report.malformed.count == report.rows) refuse_bad_rows();
  if (report.rows == 0 && choice.part == RowChoice::Part::held_out)
    throw DataError(concat("data.eval: ", name, " selects no rows; choose a larger share"));
  if (report.rows == 0 && choice.part == RowChoice::Part::kept)
    throw DataError(concat("data.eval: holding out ", choice.held_out, " of ", name,
                           " leaves no rows to train on; choose a smaller share"));
  if (config.kind == DataKind::feedback && choice.part != RowChoice::Part::held_out && size > 1 &&
      (report.undesirable == 0 || report.undesirable == report.samples))
    throw DataError(concat(name, ": all ", grouped(report.samples), " answers are judged ",
                           report.undesirable == 0 ? "good" : "bad",
                           "; objective.name: kto needs both (\"label\": true and false)"));
  if (size == 0)
    throw DataError(concat(name, ": none of the ", grouped(report.rows), " rows gives a sample",
                           report.dropped_rows > 0 ? "; all are too long (data.long_samples: drop)" : ""));
  if (report.without_supervision < report.samples) return;
  throw DataError(concat(origin(0), ": no trainable tokens in any of the ", grouped(report.samples),
                         " samples: ", why_nothing_to_learn(report, config.max_length)));
}

}  // namespace trainer
