#include "run/kept_references.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/base/version.h"

#include "base/checksum.h"
#include "base/progress.h"
#include "data/cache_folder.h"
#include "run/fixed_settings.h"
#include "run/reference_file.h"
#include "training/evaluate_answers.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr double kSecondsBetweenWrites = 5;
constexpr int64_t kGroupsAtOnce = 8;  // of rows; several ranks add up what each has computed after so many

// The entries of fixed_settings() that make the model and its tokens. A new adapter begins as nothing,
// whatever its settings are.
bool is_of_model(const std::string& entry) {
  const bool of_rows = entry.starts_with("data.train") || entry.starts_with("data.eval");
  return entry.starts_with("model.") || entry.starts_with("lora.adapter") ||
         (entry.starts_with("data.") && !of_rows);
}

// All that the log-probabilities depend on besides the rows.
ReferenceFile::Facts facts_of_model(const RunParts& parts) {
  ReferenceFile::Facts facts{{"the program's version", kVersion},
                             {"model.dtype", concat(static_cast<int>(parts.prepared.model->dtype()))},
                             {"device", parts.device.is_cpu() ? "cpu" : "gpu"}};
  for (const auto& [entry, value] : fixed_settings(parts.asked))
    if (is_of_model(entry)) facts.insert_or_assign(entry, value);
  return facts;
}

// What a file of the cache is called after: what the user names, how rows become samples, and not what is in
// them. So a file whose contents have changed is found, and runs that take turns with other settings have
// files of their own.
std::string name_of(const RunParts& parts, const Dataset& data, const std::string& of) {
  const Config& config = parts.asked;
  std::string settings = !config.lora ? "" : config.lora->use_dora ? "dora\n" : "lora\n";
  for (const auto& [key, value] : settings_of_rows(config)) settings += concat(key, ' ', value, '\n');
  return checksum(concat(fs::absolute(config.model.path).string(), '\n', data.name(), '\n', of, '\n',
                         config.lora ? config.lora->adapter : "", '\n',
                         static_cast<int>(parts.prepared.model->dtype()), parts.device.is_cpu(), '\n',
                         config.model.quantize, '\n', config.data.chat_template, '\n', settings));
}

// Passes over one of the data sets of a run, and the files of what they give.
class References {
 public:
  References(RunParts& parts, Dataset& data, const char* set, ReferenceFile::Facts facts)
      : parts_(parts), data_(data), set_(set), facts_(std::move(facts)), pass_{*parts.prepared.model,
                                                                               data,
                                                                               parts.resolved,
                                                                               parts.device,
                                                                               budget_,
                                                                               listener_,
                                                                               between_,
                                                                               parts.ranks} {
    const Dataset::Checksums sums = data.checksums();
    facts_["the rows"] = concat(data.size(), " ", sums.samples);
  }

  void of_answers() {
    const int64_t sides = data_.sides(), rows = data_.size();
    ReferenceFile file = file_of("answers");
    std::vector<double> values = shared(file.read());
    const int64_t group = pass_.group();
    int64_t done = std::min(std::ssize(values) / sides, rows);
    if (done < rows) done -= done % group;
    values.resize(static_cast<size_t>(done * sides));
    announce(file, done, rows, "rows");
    if (done < rows) {
      Progress shown(what("answers"), rows);
      Clock::time_point written{};  // the first part is written at once
      for (int64_t end = done; done < rows; done = end) {
        shown.set(done);
        end = std::min(done + kGroupsAtOnce * group, rows);
        std::ranges::copy(pass_.answers(done, end), std::back_inserter(values));
        write_now_and_then(file, values, end == rows, written);
      }
    }
    data_.set_references(std::move(values));
  }

  // kto's: `pairs` name a row, and the row whose answer its prompt gets.
  void of_others(const std::set<RowPair>& pairs) {
    ReferenceFile file = file_of("other answers");
    std::map<RowPair, double> known = as_map(shared(file.read()));
    std::vector<RowPair> missing;
    std::ranges::copy_if(pairs, std::back_inserter(missing),
                         [&](const RowPair& pair) { return !known.contains(pair); });
    announce(file, std::ssize(pairs) - std::ssize(missing), std::ssize(pairs), "pairs of rows");
    Progress shown(what("other answers"), std::ssize(missing));
    Clock::time_point written{};
    const auto at_once = static_cast<size_t>(kGroupsAtOnce * pass_.group());
    for (size_t first = 0; first < missing.size(); first += at_once) {
      shown.set(static_cast<int64_t>(first));
      const size_t count = std::min(at_once, missing.size() - first);
      const std::vector<double> found = pass_.others(std::span(missing).subspan(first, count));
      for (size_t i = 0; i < count; i++) known[missing[first + i]] = found[i];
      write_now_and_then(file, as_numbers(known), first + count == missing.size(), written);
    }
    data_.set_references_of_others(std::move(known));
  }

 private:
  std::string what(const char* of) const {
    return concat("the reference's log-probabilities of the ", set_, " data's ", of);
  }
  ReferenceFile file_of(const char* of) const {
    const std::string name = name_of(parts_, data_, concat(set_, " ", of));
    return {cache_folder(parts_.asked.data.cache) / "references" / (name + ".references"), facts_, what(of)};
  }

  // All ranks go on from what the first one finds.
  std::vector<double> shared(std::vector<double> found) const {
    if (parts_.ranks.alone()) return found;
    const bool first = parts_.ranks.is_first();
    const double count = first ? static_cast<double>(found.size()) : 0.0;
    found.resize(static_cast<size_t>(all_reduce(parts_.ranks, {count}, Channel::phases).front()));
    if (!first) std::ranges::fill(found, 0.0);
    return all_reduce(parts_.ranks, found, Channel::phases);
  }

  void announce(const ReferenceFile& file, int64_t done, int64_t all, const char* things) const {
    const std::string where = file.path().string();
    if (done == all) {
      log::info(concat(file.what(), ": ", where));
    } else if (done > 0) {
      log::info(concat(file.what(), ": ", where, " has those of ", grouped(done), " of ", grouped(all), " ",
                       things, "; the rest is computed now"));
    } else {
      log::info(concat(file.what(), ": one pass over ", grouped(all), " ", things, ", kept in ", where));
    }
  }

  void write_now_and_then(ReferenceFile& file, const std::vector<double>& values, bool last,
                          Clock::time_point& written) const {
    const std::chrono::duration<double> since = Clock::now() - written;
    if (!parts_.ranks.is_first() || (!last && since.count() < kSecondsBetweenWrites)) return;
    file.write(values);
    written = Clock::now();
  }

  // Three numbers for each pair; indices of rows are exact in fp64.
  static std::vector<double> as_numbers(const std::map<RowPair, double>& known) {
    std::vector<double> numbers;
    for (const auto& [pair, value] : known) {
      numbers.push_back(static_cast<double>(pair.first));
      numbers.push_back(static_cast<double>(pair.second));
      numbers.push_back(value);
    }
    return numbers;
  }
  static std::map<RowPair, double> as_map(const std::vector<double>& numbers) {
    std::map<RowPair, double> known;
    for (size_t i = 0; i + 2 < numbers.size(); i += 3)
      known[{static_cast<int64_t>(numbers[i]), static_cast<int64_t>(numbers[i + 1])}] = numbers[i + 2];
    return known;
  }

  RunParts& parts_;
  Dataset& data_;
  const char* set_;
  ReferenceFile::Facts facts_;
  BatchBudget budget_;
  RecoveryListener listener_;
  std::function<void()> between_;
  DatasetPass pass_;
};

// The pairs of all steps of the run: each row with the one before it in its step.
std::set<RowPair> pairs_of_steps(const RunParts& parts) {
  std::set<RowPair> pairs;
  int64_t seen = 0;
  for (int64_t step = 0; step < parts.length.total_steps; step++) {
    const std::vector<int64_t> rows = parts.order.step_at(seen, parts.resolved.effective_batch_size());
    for (size_t i = 0; i < rows.size(); i++) pairs.emplace(rows[i], rows[i == 0 ? rows.size() - 1 : i - 1]);
    seen += std::ssize(rows);
  }
  return pairs;
}

}  // namespace

void keep_references(RunParts& parts) {
  if (parts.resolved.reference() != Reference::kept) return;
  parts.trainer.weights_changed();
  const ReferenceFile::Facts facts = facts_of_model(parts);
  const bool judges = parts.resolved.objective.judges();
  References of_training(parts, parts.train, "training", facts);
  of_training.of_answers();
  if (judges) of_training.of_others(pairs_of_steps(parts));
  if (!parts.eval) return;
  References of_evaluation(parts, *parts.eval, "evaluation", facts);
  of_evaluation.of_answers();
  if (!judges) return;
  const std::vector<RowPair> pairs = rows_with_the_one_before(parts.eval->size());
  of_evaluation.of_others({pairs.begin(), pairs.end()});
}

}  // namespace trainer
