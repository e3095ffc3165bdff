// trainer train: a run from start to end.
#include "trainer/run/train.h"

#include <exception>
#include <filesystem>
#include <optional>
#include <sstream>
#include <unistd.h>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/log.h"
#include "trainer/base/rank_place.h"
#include "trainer/base/strings.h"
#include "trainer/base/version.h"
#include "trainer/config/load.h"
#include "trainer/formats/run_position.h"
#include "trainer/memory/device_memory.h"
#include "trainer/memory/oom.h"
#include "trainer/memory/summary.h"
#include "trainer/parallel/ranks.h"
#include "trainer/text/chat_template.h"
#include "trainer/text/tokenizer.h"

#include "base/checksum.h"
#include "base/ending.h"
#include "base/progress.h"
#include "base/shell_word.h"
#include "base/text.h"
#include "config/go_on.h"
#include "data/cache_folder.h"
#include "data/measure.h"
#include "formats/run_status.h"
#include "models/random_weights.h"
#include "notify/notifier.h"
#include "notify/reporters.h"
#include "run/describe_data.h"
#include "run/end_of_run.h"
#include "run/fixed_settings.h"
#include "run/kept_references.h"
#include "run/loop.h"
#include "run/output_directory.h"
#include "run/resume.h"
#include "run/run_parts.h"
#include "run/run_plan.h"
#include "run/same_inputs.h"
#include "run/start_block.h"
#include "run/watches.h"

namespace trainer {
namespace {

// Records or checks the settings that must stay the same in all starts of this run, and those that must be
// the same for all ranks.
void fix_settings(const RunParts& parts, const Config& asked, Resumption& start) {
  auto& fixed = start.position.fixed;
  const bool compared_by_first = !fixed.empty();  // with those of an earlier start
  if (!compared_by_first) fixed = fixed_settings(asked);
  const std::string samples = samples_text(parts.train);
  check_same_inputs(parts, compared_by_first && !parts.ranks.is_first() ? fixed_settings(asked) : fixed,
                    samples);
  fixed[kTemplateDate] = start.template_date;
  check_samples(start.position, samples, parts.length.dataset_size, parts.resolved);
  fixed["model.dtype"] = parts.prepared.model->dtype() == at::kFloat ? "fp32" : "bf16";
}

// Forgets what loading needed.
void settle(RunParts& parts) {
  empty_cache(parts.device);
  reset_peak_memory(parts.device);
}

// From here on the output directory belongs to this run. All problems of the data were found before.
void begin_output(RunParts& parts, const Resumption& start) {
  const Config& config = parts.resolved;
  OutputDirectory& output = parts.output;
  if (!parts.ranks.is_first()) return settle(parts);
  const RunDataReport data = [&] {
    const Progress shown("looking at the data");
    return describe_data(config, parts.train, parts.eval_data(), parts.order, *parts.tokenizer);
  }();
  check_limits(data, config.data);
  begin_run(output, start);
  keep_data_report(data, output.directory());
  keep_skipped_rows(parts.train, parts.eval_data(), output.directory());
  keep_environment(output.directory(), parts.model(), parts.device, parts.length, start.position.step,
                   start.keeps_results);
  settle(parts);
  show_start(output, config, parts.prepared.artefacts, parts.model(), parts.plan, data, parts.length,
             start.position.step, parts.device);
}

// Writes to status.json how the run ended that has thrown `error`, which is being handled.
void record_end(OutputDirectory& output, const Ranks& ranks, const std::exception& error) {
  RankEnd end = end_of_run(ranks, error);
  if (is_oom(error))
    end = {end.rank, static_cast<int>(ExitCode::out_of_memory), oom_message(error), end.family};
  const bool saved = end.code == static_cast<int>(ExitCode::interrupted);
  output.end(saved ? RunPhase::stopped : RunPhase::failed, end.code, first_line(end.message));
}

// Checkpoints are written and read by all ranks.
void check_shared_output(const std::filesystem::path& directory, const Ranks& ranks) {
  run_on_all_ranks(ranks, [&] {
    if (!ranks.is_first() && !std::filesystem::exists(directory / kPositionFile)) {
      throw OutputDirectoryError(
          concat("output_dir ", directory.string(),
                 ": does not show what rank 0 has written into it; it must be one folder "
                 "that all machines see"));
    }
  });
}

// Returns the first lines in which two texts differ.
std::pair<std::string, std::string> first_difference(const std::string& a, const std::string& b) {
  std::istringstream first(a), second(b);
  std::string line, other;
  do {
    line.clear();
    other.clear();
    std::getline(first, line);
    std::getline(second, other);
  } while (line == other && (first || second));
  return {line, other};
}

// All ranks must train the same with the same program.
void check_same_start(const Config& config, const Ranks& ranks) {
  std::ostringstream text;
  write_yaml(config, text);
  const std::string own = concat("trainer: ", kVersion, "\n", text.str());
  const std::vector<std::string> starts = ranks.all_gather(own, Channel::phases);
  for (size_t rank = 1; rank < starts.size(); rank++) {
    if (starts[rank] == starts[0]) continue;
    const auto [first, other] = first_difference(starts[0], starts[rank]);
    throw ConfigError(concat("rank ", rank, " was started differently: it has '", other,
                             "' where rank 0 has '", first,
                             "'. All ranks need the same program, configuration and options"));
  }
}

// Rank 0 opens and locks the output directory; the others write nothing there but into checkpoints.
OutputDirectory open_output(const Config& config, const Ranks& ranks) {
  std::optional<OutputDirectory> output;
  run_on_all_ranks(
      ranks,
      [&] {
        output.emplace(ranks.is_first() ? OutputDirectory::open(config)
                                        : OutputDirectory::of_other_rank(config));
      },
      Channel::phases);
  return std::move(*output);
}

void say_what_can_follow(const Config& config, const std::filesystem::path& directory) {
  const std::string result = shell_word(directory.string());
  const RowScore score = config.objective.row_score();
  if (score != RowScore::vector)
    log::info(concat("to try it: ",
                     score != RowScore::none ? concat("trainer generate ", result, " --classify 'a text'")
                     : has_chat_template(directory) ? concat("trainer chat ", result)
                                                    : concat("trainer generate ", result, " 'a prompt'")));
  log::info(
      step_to_go_on_from(directory)
          ? concat("to train longer: ", longer_run_command(config, directory))
          : "no checkpoint was kept, so a longer run would begin anew (save.strategy, save.weights_only)");
}

// Returns the configuration with model.path set to a directory in the cache folder that has the random
// weights of this config.json, tokenizer and seed; writes it if it is not there. Otherwise returns the
// configuration as it is. Throws FormatError.
Config with_initial_weights(Config config) {
  if (config.model.init != ModelInit::random) return config;
  const std::filesystem::path from = config.model.path;
  if (!has_tokenizer(from))
    throw FormatError(concat(from.string(), ": model.init: random needs the files of a tokenizer beside ",
                             "config.json; copy those of a model with the same vocabulary there"));
  const std::string made_of = concat(read_file(from / "config.json"), "\n",
                                     load_tokenizer(from)->fingerprint(), "\nseed ", config.seed);
  const std::filesystem::path to = cache_folder(config.data.cache) / "initial" / checksum(made_of);
  config.model.path = to.string();
  if (std::filesystem::exists(to / "config.json")) return config;
  const Progress shown("writing random weights");
  const std::filesystem::path unfinished = concat(to.string(), kUnfinished, "-", getpid());
  std::filesystem::create_directories(unfinished);
  try {
    write_random_model(from, unfinished, static_cast<uint64_t>(config.seed));
    std::error_code taken;  // by another process, which has written the same
    std::filesystem::rename(unfinished, to, taken);
    if (taken && !std::filesystem::exists(to / "config.json"))
      throw FormatError(concat(to.string(), ": cannot be written: ", taken.message()));
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove_all(unfinished, ignored);
    throw;
  }
  std::error_code ignored;
  std::filesystem::remove_all(unfinished, ignored);
  log::info(concat("random weights: ", to.string(), " (model.init: random, seed ", config.seed, ")"));
  return config;
}

void run_training(const Config& given, const std::vector<MetricSink*>& sinks, Notifier& notifier,
                  const Ranks& ranks, const RankPlace& place) {
  const TimeLimit time_limit(given.training.max_hours);
  check_same_start(given, ranks);
  Reporters reporters;  // ends last: after status.json says how the run ended
  OutputDirectory output = open_output(given, ranks);
  const Config asked = with_initial_weights(given);
  for (MetricSink* sink : sinks) output.add_sink(*sink);
  output.add_sink(notifier);
  output.add_sink(reporters);
  Resumption start = find_resumption(asked, output, ranks);
  if (start.is_complete) {
    log::info(concat("this run is complete after ", grouped(start.position.step),
                     " steps: ", output.directory().string(), "; there is nothing left to do"));
    say_what_can_follow(asked, output.directory());
    return;
  }
  check_same_files(asked, ranks);
  RunParts parts(asked, output, start, ranks, place);
  fix_settings(parts, asked, start);
  keep_references(parts);  // of the model as the run began
  {
    const Progress shown("restoring the state of the run");
    load_state(start, parts.prepared, parts.trainer);
  }
  check_same_state(parts, start);
  try {
    run_on_all_ranks(
        ranks, [&] { begin_output(parts, start); }, Channel::phases);
    ranks.have_loaded();
    check_shared_output(output.directory(), ranks);
    if (ranks.is_first()) reporters.begin(asked.observe.report_to, output.directory());
    notifier.begin(start.position.step,
                   outlook_of(parts.resolved, parts.length, parts.eval_data() != nullptr));
    Loop(parts, start, time_limit).go();
  } catch (const std::exception& error) {
    record_end(output, ranks, error);
    throw;
  }
  output.end(RunPhase::finished, 0, "");
  log::info(concat(ranks.alone() ? "memory: " : "memory of rank 0: ", memory_summary(parts.device).text()));
  log::info(concat("done: ", output.directory().string()));
  say_what_can_follow(asked, output.directory());
}

// A rank other than 0 shows nothing and tells nobody.
void train_silently(Config config, const Ranks& ranks, const RankPlace& place) {
  config.notify = {};
  log::set_level(log::Level::error);  // rank 0 has the same warnings
  Notifier nobody(config);
  end_with_others(ranks, [&] {
    translate_torch_errors(kModelDidNotFit, [&] { run_training(config, {}, nobody, ranks, place); });
  });
}

}  // namespace

void train(const Config& config, const std::vector<MetricSink*>& sinks) {
  const RankPlace place = rank_place();
  const Ranks ranks(place, config.parallel.timeout);
  if (!ranks.is_first()) return train_silently(config, ranks, place);
  Notifier notifier(config);
  try {
    end_with_others(ranks, [&] {
      translate_torch_errors(kModelDidNotFit, [&] { run_training(config, sinks, notifier, ranks, place); });
    });
  } catch (...) {
    notifier.failed(std::current_exception());
    throw;
  }
  notifier.finished();
}

}  // namespace trainer
