#include "run/resume.h"

#include <set>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/formats/checkpoint.h"
#include "trainer/formats/model_directory.h"
#include "trainer/formats/peft.h"
#include "trainer/run/run_length.h"
#include "trainer/text/chat_template.h"

#include "formats/optimizer_state.h"
#include "formats/trainer_state.h"
#include "run/fixed_settings.h"
#include "run/run_progress.h"
#include "run/run_state.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

using Fixed = std::map<std::string, std::string>;

bool lies_in(const fs::path& path, const fs::path& directory) {
  std::error_code ignored;
  return fs::equivalent(fs::absolute(path).parent_path(), directory, ignored);
}

// "checkpoints/" -> "checkpoints", so that it has a name and a parent.
fs::path without_slash(const fs::path& path) { return path.has_filename() ? path : path.parent_path(); }

class Search {
 public:
  Search(const Config& config, const fs::path& directory) : config_(config), directory_(directory) {}

  // In a directory without results, or with results that will be removed.
  Resumption anew() {
    if (names_checkpoint()) begin_at_named();
    return std::move(found_);
  }

  Resumption in_results() {
    const std::optional<RunPosition> root = own_position();
    if (root) {
      check_same(*root, directory_);
      check_beginning(*root);
      found_.position.began_from = root->began_from;
    }
    found_.keeps_results = true;
    if (names_checkpoint() && lies_in(named(), directory_)) {
      resume_from(read_checkpoint(named()));
      found_.goes_back = true;
    } else if (root && is_complete(*root)) {
      found_.is_complete = true;
      found_.position.step = root->step;
      found_.position.dataset_size = root->dataset_size;  // a position after a step has one
    } else {
      find_newest(root);
    }
    return std::move(found_);
  }

 private:
  bool names_checkpoint() const { return config_.resume != "auto" && config_.resume != "never"; }
  fs::path named() const { return without_slash(config_.resume); }

  void begin_at_named() { resume_from(read_checkpoint(named())); }

  static std::string absolute(const fs::path& path) { return fs::weakly_canonical(path).string(); }

  // A run begins from a checkpoint in another directory only once, and the run here exists already.
  void check_beginning(const RunPosition& root) const {
    if (!names_checkpoint() || lies_in(named(), directory_)) return;
    if (absolute(named()) == root.began_from) return;
    throw OutputDirectoryError(
        concat("output_dir ", directory_.string(), ": holds a run that began ",
               root.began_from.empty() ? "at its beginning" : "from " + root.began_from,
               ", not from resume: ", named().string(),
               "; choose another output_dir, resume that run (resume=auto), or start from the "
               "beginning with overwrite_output_dir=true"));
  }

  // The position of the run in the output directory, written at its start and at its end.
  std::optional<RunPosition> own_position() const {
    if (!fs::exists(directory_ / kPositionFile)) return std::nullopt;
    try {
      return read_position(directory_);
    } catch (const FormatError& error) {
      log::warning(error.what());
      return std::nullopt;
    }
  }

  void find_newest(const std::optional<RunPosition>& root) {
    remove_checkpoint_litter(directory_);
    const auto newest = newest_complete_checkpoint(directory_, {kPositionFile, kOptimizerFile});
    const char* choices =
        "; choose another output_dir, or start from the beginning with overwrite_output_dir=true";
    if (newest) {
      resume_from(*newest);
    } else if (root && root->step > 0) {
      throw OutputDirectoryError(
          concat("output_dir ", directory_.string(), ": its run is complete after step ", root->step,
                 " and left no checkpoint that a longer one can resume from", choices));
    } else if (!root) {
      throw OutputDirectoryError(concat("output_dir ", directory_.string(),
                                        ": holds checkpoints, and none that a run can resume from", choices));
    } else if (names_checkpoint()) {
      begin_at_named();
    } else {
      log::warning(concat("output_dir ", directory_.string(),
                          ": the run was stopped and has no checkpoint to resume from; it starts from its "
                          "beginning"));
    }
  }

  void resume_from(const Checkpoint& checkpoint) {
    for (const char* file : {kPositionFile, kOptimizerFile}) {
      if (!checkpoint.files.contains(file))
        throw of_family(
            ErrorCode::checkpoint,
            FormatError(concat(checkpoint.path.string(), ": has no ", file,
                               "; no run can resume from weights alone. To start from them, give it as "
                               "model.path or lora.adapter")));
    }
    const RunPosition position = read_position(checkpoint.path);
    check_same(position, checkpoint.path);
    const Fixed fixed = found_.position.fixed;
    const std::string began_from = found_.position.began_from;
    found_.position = position;
    found_.position.fixed = fixed;
    found_.position.began_from = began_from;
    found_.history = read_trainer_state(checkpoint.path).log_history;
    found_.checkpoint = checkpoint.path;
    if (!lies_in(checkpoint.path, directory_)) {
      found_.position.metrics_bytes = 0;  // in another file
      found_.position.began_from = absolute(checkpoint.path);
    }
    replace_lost_best();
  }

  // The result would be loaded from the best checkpoint. If it is gone, the best of those that are left
  // counts.
  void replace_lost_best() {
    RunPosition& position = found_.position;
    if (!config_.training.load_best_model_at_end || !position.best_step) return;
    const auto is_there = [&](int64_t step) {
      return step <= position.step && !kept_checkpoint(directory_, position, step).empty();
    };
    const int64_t lost = *position.best_step;
    if (is_there(lost)) return;
    BestMetric best(config_.training, evaluation_data_text(config_));
    if (!best.restore(position)) return;
    const double value = best.value().value_or(0);
    best.choose(found_.history, is_there);
    best.save(position);
    log::warning(
        concat("the best checkpoint so far is gone: ", checkpoint_path(directory_, lost).string(), ", with ",
               best.metric(), " ", value, "; ",
               best.step()
                   ? concat("the best that is left is of step ", *best.step(), ", with ", *best.value())
                   : "none of those that are left was evaluated, so the next evaluation is the best so far"));
  }

  // Also copies the settings that this start leaves open.
  void check_same(const RunPosition& saved, const fs::path& where) {
    Fixed& fixed = found_.position.fixed;
    if (fixed.empty()) fixed = fixed_settings(config_);
    keep_open_settings(saved.fixed, fixed);
    check_fixed_settings(saved.fixed, fixed, config_, where.string(), accepted_);
  }

  // Returns whether this run is complete, with its result, and no longer run is asked for.
  bool is_complete(const RunPosition& root) const { return is_over(root) && has_result(); }

  bool is_over(const RunPosition& root) const {
    if (root.step == 0) return false;
    BestMetric best(config_.training, evaluation_data_text(config_));
    best.restore(root);
    return best.patience_is_over() || root.step >= run_length(config_, root.dataset_size, root).total_steps;
  }

  // For a complete run. If its result was removed or damaged, it is made again from the last checkpoint.
  bool has_result() const {
    try {
      config_.lora ? static_cast<void>(read_adapter_weights(directory_))
                   : static_cast<void>(read_model_weights(directory_));
      return true;
    } catch (const FormatError& error) {
      log::warning(concat(error.what(), "; this run was complete, and its result is made again"));
      return false;
    }
  }

  const Config& config_;
  fs::path directory_;
  Resumption found_;
  std::set<std::string>
      accepted_;  // logged already: the directory and its checkpoint have the same differences
};

// A run has one date, however long it takes: that of its first start.
std::string date_of_run(const Config& config, const Fixed& fixed) {
  if (!config.data.template_date.empty()) return config.data.template_date;
  const auto saved = fixed.find(kTemplateDate);
  return saved != fixed.end() ? saved->second : today();
}

Resumption search(const Config& config, const OutputDirectory& output) {
  Search search(config, output.directory());
  const bool goes_on = output.has_results() && !config.overwrite_output_dir;
  Resumption found = goes_on ? search.in_results() : search.anew();
  found.template_date = date_of_run(config, found.position.fixed);
  return found;
}

// The path comes first, because it need not be UTF-8, as JSON must be.
std::string resumption_note(const Resumption& found) {
  const nlohmann::ordered_json note{{"position", position_text(found.position)},
                                    {"history", found.history},
                                    {"template_date", found.template_date},
                                    {"keeps_results", found.keeps_results},
                                    {"goes_back", found.goes_back},
                                    {"is_complete", found.is_complete}};
  return found.checkpoint.value_or("").string() + '\0' + note.dump();
}

Resumption resumption_in(const std::string& text) {
  const size_t end = text.find('\0');
  const auto note = nlohmann::ordered_json::parse(text.substr(end + 1));
  Resumption found;
  if (end > 0) found.checkpoint = text.substr(0, end);
  found.position = position_from(note.at("position").get<std::string>(), "rank 0");
  found.history = note.at("history");
  found.template_date = note.at("template_date").get<std::string>();
  found.keeps_results = note.at("keeps_results").get<bool>();
  found.goes_back = note.at("goes_back").get<bool>();
  found.is_complete = note.at("is_complete").get<bool>();
  return found;
}

}  // namespace

Resumption find_resumption(const Config& config, const OutputDirectory& output, const Ranks& ranks) {
  if (ranks.alone()) return search(config, output);
  const std::vector<std::string> notes = run_on_all_ranks(
      ranks, [&] { return ranks.is_first() ? resumption_note(search(config, output)) : std::string(); },
      Channel::phases);
  return resumption_in(notes.front());
}

void load_state(const Resumption& resumption, const Prepared& prepared, Trainer& trainer) {
  if (!resumption.checkpoint) return;
  run_on_all_ranks(
      trainer.ranks(),
      [&] {
        prepared.artefacts.load(*prepared.model, *resumption.checkpoint);
        load_optimizer(trainer, *resumption.checkpoint);
      },
      Channel::phases);
  trainer.set_steps_taken(resumption.position.step);
}

void begin_run(OutputDirectory& output, const Resumption& resumption) {
  output.begin(resumption.position, resumption.keeps_results);
  if (!resumption.checkpoint) return;
  log::info(
      concat("resumes after step ", resumption.position.step, ", from ", resumption.checkpoint->string()));
  if (!resumption.goes_back) return;
  for (const int64_t step : checkpoint_steps(output.directory())) {
    const fs::path later = checkpoint_path(output.directory(), step);
    if (step <= resumption.position.step) continue;
    log::warning(concat(later.string(), " is removed: the run resumes before it"));
    remove_checkpoint(later);
  }
}

}  // namespace trainer
