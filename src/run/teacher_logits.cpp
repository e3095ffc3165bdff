#include "run/teacher_logits.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/base/version.h"
#include "trainer/data/step_loader.h"
#include "trainer/memory/device_memory.h"
#include "trainer/models/load_model.h"

#include "base/checksum.h"
#include "base/progress.h"
#include "data/cache_folder.h"
#include "data/stored_logits.h"
#include "run/fixed_settings.h"
#include "run/run_model.h"
#include "training/evaluation_splits.h"
#include "training/teacher_pass.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using Facts = std::map<std::string, std::string>;

// The parts that what is said of a data set is kept in: each of as many rows as take about 64 MB.
class Parts {
 public:
  Parts(const Dataset& data, fs::path folder, LogitsFacts facts, int64_t top)
      : folder_(std::move(folder)), facts_(std::move(facts)), rows_(data.size()) {
    int64_t labels = 0;
    for (const SampleSet& set : data.sets()) labels += set.supervised_tokens;
    constexpr int64_t kBytes = int64_t{64} << 20U;
    const int64_t of_row = std::max<int64_t>(8 * top * labels / std::max<int64_t>(rows_, 1), 1);
    each_ = std::clamp<int64_t>(kBytes / of_row, 1, rows_);
  }

  int64_t count() const { return (rows_ + each_ - 1) / each_; }
  std::pair<int64_t, int64_t> range(int64_t part) const {
    return {part * each_, std::min(rows_, (part + 1) * each_)};
  }
  const fs::path& folder() const { return folder_; }
  fs::path file(int64_t part) const {
    std::string number = std::to_string(part + 1);
    number.insert(0, 5 - std::min<size_t>(number.size(), 5), '0');
    return folder_ / concat("logits-", number, ".safetensors");
  }
  const LogitsFacts& facts() const { return facts_; }

  // Returns the files of all parts but these.
  std::set<fs::path> files_without(const std::vector<int64_t>& missing) const {
    std::set<fs::path> files;
    for (int64_t part = 0; part < count(); part++) files.insert(file(part));
    for (const int64_t part : missing) files.erase(file(part));
    return files;
  }

  // Returns the parts that have to be computed. Says why, of the first one that does not fit.
  std::vector<int64_t> missing() const {
    std::vector<int64_t> parts;
    bool told = false;
    for (int64_t part = 0; part < count(); part++) {
      std::error_code ignored;
      const bool there = fs::exists(file(part), ignored);
      const std::string why = there ? why_logits_do_not_fit(file(part), facts_) : "is missing";
      if (!why.empty()) parts.push_back(part);
      if (why.empty()) mark_used(file(part));
      if (there && !why.empty() && !std::exchange(told, true))
        log::warning(concat(file(part).string(), ": ", why, "; what the teacher says is computed again"));
    }
    return parts;
  }
  void remove_others() const {
    std::error_code ignored;
    for (int64_t part = count(); fs::remove(file(part), ignored); part++) {
    }
  }

 private:
  fs::path folder_;
  LogitsFacts facts_;
  int64_t rows_, each_;
};

// The rows of the embedding, which may be more than the tokenizer has tokens. From config.json alone.
int64_t rows_of_model(const Config& config) {
  return model_on_meta(config.model.path, at::kFloat, /*train_all=*/false)->vocab_size();
}

// One of the data sets of a run.
struct SetOfRun {
  const char* name;
  Dataset& data;
  Parts parts;
  std::vector<int64_t> missing;
};

void compute(const Model& model, const Dataset& data, const Parts& parts, const std::vector<int64_t>& missing,
             const Config& config, at::Device device, int64_t top, int64_t vocab, int64_t known,
             const std::function<bool(int64_t)>& is_mine, Progress& shown) {
  BatchBudget budget;
  const TeacherPass pass{model, data, config, device, top, vocab, known, budget};
  fs::create_directories(parts.folder());
  for (const int64_t part : missing) {
    const auto [begin, end] = parts.range(part);
    if (is_mine(part)) write_logits(parts.file(part), pass.rows(begin, end), parts.facts());
    shown.add(end - begin);
  }
  parts.remove_others();
}

// All that it depends on besides the rows.
Facts facts_of_teacher(const Config& config, at::Device device) {
  Facts facts = settings_of_rows(config);
  for (const auto& [name, value] : small_inputs(config))
    if (!name.ends_with("config.json")) facts[name] = value;
  facts["the program's version"] = kVersion;
  facts["objective.teacher"] = teacher_text(config.objective.teacher);
  facts["objective.top_k"] = std::to_string(config.objective.top_k);
  facts["model.dtype"] = choose_dtype(config.model, device) == at::kFloat ? "fp32" : "bf16";
  facts["device"] = device.is_cpu() ? "cpu" : "gpu";
  return facts;
}

// What the user names, and how rows become samples. So a folder whose contents no longer fit is found, and
// runs with other settings have folders of their own.
fs::path folder_of(const Config& config, const Dataset& data, const char* set, const Facts& facts) {
  std::string name = concat(fs::absolute(config.objective.teacher).string(), '\n', data.name(), '\n', set);
  for (const auto& [key, value] : settings_of_rows(config)) name += concat('\n', key, ' ', value);
  for (const char* key : {"objective.top_k", "model.dtype", "device"}) name += concat('\n', facts.at(key));
  return cache_folder(config.data.cache) / "teacher" / checksum(name);
}

// Which rows there are, and how they become tokens.
void add_rows(const Dataset& data, Facts& facts) {
  const Dataset::Checksums checksums = data.checksums();
  facts["the rows"] = concat(data.size(), " ", checksums.samples);
  facts["how rows become tokens"] = checksums.form;
  facts["the date"] = data.report().template_date;
}

SetOfRun set_of_run(const char* name, Dataset& data, const Config& config, const Tokenizer& tokenizer,
                    Facts facts) {
  const fs::path folder = folder_of(config, data, name, facts);
  add_rows(data, facts);
  Parts parts(data, folder, LogitsFacts::of(tokenizer, std::move(facts)), config.objective.top_k);
  std::vector<int64_t> missing = parts.missing();
  return {name, data, std::move(parts), std::move(missing)};
}

// Its ids must mean the same; it may have more of them, or fewer, at the end.
void check_teacher(const OpenModel& teacher, const Tokenizer& tokenizer, const Dataset& data,
                   const std::string& path) {
  const int64_t size = std::min(teacher.tokenizer->vocab_size(), tokenizer.vocab_size());
  if (vocabulary_checksum(*teacher.tokenizer, size) != vocabulary_checksum(tokenizer, size))
    throw ConfigError(concat("objective.teacher: ", path, " has another vocabulary (",
                             grouped(teacher.tokenizer->vocab_size()), " tokens) than the model (",
                             grouped(tokenizer.vocab_size()),
                             "): a teacher must have the tokens of the model that learns from it"));
  if (teacher.model->encoder_decoder() != data.encoder_decoder())
    throw ConfigError(concat("objective.teacher: ", path, " is ",
                             data.encoder_decoder() ? "a decoder, and the model is an encoder-decoder"
                                                    : "an encoder-decoder, and the model is a decoder",
                             "; both must be of one kind"));
}

void ask_teacher(const Config& config, const Tokenizer& tokenizer, std::vector<SetOfRun>& sets,
                 at::Device device, const Ranks& ranks) {
  int64_t rows = 0;
  for (const SetOfRun& set : sets) {
    for (const int64_t part : set.missing) rows += set.parts.range(part).second - set.parts.range(part).first;
  }
  if (rows == 0) return;
  ModelConfig of_teacher;
  of_teacher.path = config.objective.teacher;
  of_teacher.dtype = config.model.dtype;
  const OpenModel teacher = open_model(of_teacher, device);
  check_teacher(teacher, tokenizer, sets.front().data, config.objective.teacher);
  const int64_t vocab =
      std::min(teacher.model->vocab_size(), std::max(rows_of_model(config), tokenizer.vocab_size()));
  if (ranks.is_first()) tidy_folders(sets.front().parts.folder().parent_path());
  log::info(concat("the teacher: one pass over ", grouped(rows), " rows, kept in ",
                   sets.front().parts.folder().parent_path().string()));
  Progress shown("what the teacher says", rows);
  Config packed = config;
  settle_packing(packed, *teacher.model, device.type());
  for (const SetOfRun& set : sets) {
    const auto is_mine = [&](int64_t part) { return part % ranks.count() == ranks.rank(); };
    compute(*teacher.model, set.data, set.parts, set.missing, packed, device,
            std::min(config.objective.top_k, vocab), vocab, teacher.tokenizer->vocab_size(), is_mine, shown);
  }
}

// Reads every row once, so that a mistake ends the run before the model is loaded.
void compare_with_rows(const Dataset& data, const Config& config) {
  constexpr int64_t kAtOnce = 256;
  Progress shown("comparing the rows with what the teacher says", data.size());
  StepLoader loader(data, groups_of(0, data.size(), kAtOnce),
                    {config.training.num_workers, config.data.prefetch, {}});
  for (int64_t first = 0; first < data.size(); first += kAtOnce) {
    shown.set(first);
    loader.next();
  }
}

}  // namespace

int64_t add_teacher(const Config& config, const Tokenizer& tokenizer, Dataset& train,
                    std::optional<Dataset>& eval, at::Device device, const Ranks& ranks) {
  if (!config.objective.logits.empty()) {
    const auto logits = StoredLogits::open(config.objective.logits, tokenizer,
                                           {rows_of_model(config), settings_of_rows(config)});
    train.set_logits(logits);
    run_on_all_ranks(
        ranks,
        [&] {
          if (ranks.is_first()) compare_with_rows(train, config);
        },
        Channel::phases);
    log::info(concat("what the teacher says: ", logits->name(), ", ", grouped(logits->rows()), " rows, ",
                     logits->top(), " tokens at a place"));
    return logits->top();
  }
  const Facts facts = facts_of_teacher(config, device);
  std::vector<SetOfRun> sets;
  sets.push_back(set_of_run("training", train, config, tokenizer, facts));
  if (eval) sets.push_back(set_of_run("evaluation", *eval, config, tokenizer, facts));
  run_on_all_ranks(
      ranks, [&] { ask_teacher(config, tokenizer, sets, device, ranks); }, Channel::phases);
  empty_cache(device);
  int64_t top = 0;
  for (SetOfRun& set : sets) {
    for (int64_t part = 0; part < set.parts.count(); part++) {
      if (!fs::exists(set.parts.file(part)))
        throw DataError(concat(set.parts.file(part).string(),
                               ": is missing; with several machines, data.cache ",
                               "must be a folder that all of them see"));
    }
    const auto logits = StoredLogits::open(set.parts.folder(), tokenizer,
                                           {rows_of_model(config), {}, set.parts.files_without(set.missing)});
    if (set.missing.empty())
      log::info(concat("what the teacher says of the ", set.name, " data: ", logits->name()));
    set.data.set_logits(logits);
    top = std::max(top, logits->top() - 1);  // besides the rest
  }
  return top;
}

void save_logits(const Teacher& teacher, const Dataset& dataset, const Config& config, at::Device device,
                 int64_t top, const fs::path& folder) {
  Facts facts = teacher.made_of;
  facts["the program's version"] = kVersion;
  facts["tokens at a place"] = std::to_string(top);
  facts.merge(settings_of_rows(config));
  add_rows(dataset, facts);
  const int64_t vocab = teacher.model.vocab_size();
  const Parts parts(dataset, folder, LogitsFacts::of(teacher.tokenizer, std::move(facts)), top);
  const std::vector<int64_t> missing = parts.missing();
  Progress shown("logits", dataset.size());
  compute(
      teacher.model, dataset, parts, missing, config, device, std::min(top, vocab), vocab,
      teacher.tokenizer.vocab_size(), [](int64_t) { return true; }, shown);
  log::info(concat("logits: ", folder.string(), " (", grouped(dataset.size()), " rows; objective.logits)"));
}

}  // namespace trainer
