#include "commands/init_rows.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/data/dataset.h"
#include "trainer/data/length_counts.h"
#include "trainer/data/sample_view.h"
#include "trainer/text/chat_template.h"
#include "trainer/text/tokenizer.h"

#include "base/foreign_errors.h"
#include "base/progress.h"
#include "base/terminal.h"
#include "base/text.h"
#include "config/presets.h"
#include "data/report_words.h"
#include "run/run_model.h"
#include "text/chat/template_fit.h"

namespace trainer {
namespace {

constexpr int64_t kNoLimit = 10'000'000;  // of a length, while lengths are counted
constexpr int64_t kLongestChosen = 8192;  // tokens; a longer length is the user's decision
constexpr int64_t kRowsToHoldOut = 100;   // with fewer, a share of them says nothing
constexpr int64_t kSurelyHeldOut = 1000;  // of so many rows, at least one is held out
constexpr int64_t kLengthStep = 128;      // lengths are multiples of it

std::string shown_fields(const FieldChoice& choice) {
  if (choice.target.empty()) return choice.input.empty() ? choice.reason : concat("all of ", choice.input);
  return concat("--input \"", one_line(choice.input, 80), "\" --target \"", one_line(choice.target, 80),
                "\"");
}

// A template names columns that exist, or the error is what the user reads.
std::string problem_with(const Columns& columns, const std::string& text) {
  try {
    check_template(columns, text, "the answer");
    return "";
  } catch (const Error& error) {
    const std::string problem = error.what();
    return problem.starts_with("init: ") ? problem.substr(6) : problem;
  }
}

FieldChoice asked_fields(const Columns& columns, FieldChoice guess, const InitOptions& options,
                         bool encoder_decoder) {
  const auto is_column = [&](const std::string& answer) { return problem_with(columns, answer); };
  guess.input =
      options.ask("Input: a column, or a template such as \"{title}: {text}\"", guess.input, is_column);
  const std::string none = encoder_decoder ? "" : "; none: all of the input is learned";
  const bool is_text = guess.kind == DataKind::text;
  const std::string target =
      options.ask(concat("Answer, which is learned: a column or a template", none),
                  is_text ? "none" : guess.target, [&](const std::string& answer) {
                    return answer == "none" && !encoder_decoder ? "" : is_column(answer);
                  });
  const bool has_target = target != "none" || columns.find("none") != nullptr;
  guess.target = has_target ? target : "";
  guess.kind = !has_target ? DataKind::text : encoder_decoder ? DataKind::seq2seq : DataKind::completion;
  guess.reason = "as answered";
  return guess;
}

DataKind kind_named(const std::string& name) {
  for (const DataKind kind : {DataKind::seq2seq, DataKind::completion, DataKind::text, DataKind::chat}) {
    if (name == name_of(kind)) return kind;
  }
  return DataKind::automatic;
}

// Whether a template writes functions, their calls and results.
bool writes_functions(const ChatTemplate& chat_template) {
  const ChatAbilities& able = chat_template.abilities();
  return able.tools && able.calls && able.results;
}

// The configuration with which all of the rows are seen, in their whole length.
Config config_for(const Config& base, const DataConfig& data, const InitOptions& options) {
  Config config = base;
  config.model.path = options.model_path;
  config.data = data;
  config.data.train = options.data_paths;
  config.data.eval = {};
  config.data.chat_template = chat_template_file(data.chat_template);
  config.data.max_length = config.data.max_source_length = config.data.max_target_length = kNoLimit;
  config.data.bad_rows = BadRows::skip;
  return config;
}

Dataset opened(const Config& base, const DataConfig& data, const InitOptions& options, const RowsModel& model,
               const Tokenizer& tokenizer) {
  return Dataset::open_train(config_for(base, data, options), tokenizer, model.encoder_decoder);
}

// Which rows are held out depends on their contents: of a few, it may be none.
bool can_hold_out(const Config& config, const Dataset& rows, const Tokenizer& tokenizer) {
  std::set<uint64_t> contents;
  for (int64_t i = 0; i < rows.size() && std::ssize(contents) < kSurelyHeldOut; i++)
    contents.insert(rows.content(i));
  if (std::ssize(contents) < kRowsToHoldOut) return false;
  if (std::ssize(contents) >= kSurelyHeldOut) return true;
  Config held_out = config;
  held_out.data.eval.held_out = kHeldOut;
  try {
    return Dataset::open_eval(held_out, tokenizer, rows.encoder_decoder()).size() > 0;
  } catch (const DataError&) {
    return false;
  }
}

// "40 x field "target" is null, 5 x ...". Numbers in a reason differ from row to row.
std::string reasons_text(const Dataset& rows) {
  constexpr size_t kShown = 4, kLength = 120;
  struct Kind {
    std::string example;
    int64_t count = 0;
  };
  std::map<std::string, Kind> kinds;
  rows.for_each_skipped_row([&](const SkippedRow& row) {
    std::string key;
    for (const char c : row.problem) {
      const bool digit = c >= '0' && c <= '9';
      if (!digit) key += c;
      if (digit && !key.ends_with('#')) key += '#';
    }
    Kind& kind = kinds[key];
    if (kind.count++ == 0) kind.example = one_line(row.problem, kLength);
  });
  std::vector<Kind> sorted;
  for (auto& [key, kind] : kinds) sorted.push_back(std::move(kind));
  std::ranges::stable_sort(sorted, std::ranges::greater{}, &Kind::count);
  std::vector<std::string> texts;
  for (size_t i = 0; i < std::min(kShown, sorted.size()); i++)
    texts.push_back(concat(grouped(sorted[i].count), " x ", sorted[i].example));
  if (sorted.size() > kShown) texts.push_back(concat(sorted.size() - kShown, " other reasons"));
  return join(texts, "; ");
}

struct ChosenLength {
  int64_t tokens, longer;
  std::string note;
};

// All samples fit if the longest is not far above 99 % of them; else these 99 %.
ChosenLength choose_length(const LengthCounts& lengths, const char* what, int64_t positions = 0,
                           const char* fate = "truncated") {
  const int64_t most = lengths.percentile(0.99), longest = lengths.longest();
  const int64_t wanted = longest <= most + most / 2 ? longest : most;
  int64_t tokens = std::max<int64_t>(1, (wanted + kLengthStep - 1) / kLengthStep) * kLengthStep;
  tokens = std::min(tokens, kLongestChosen);
  if (positions > 0) tokens = std::min(tokens, positions);
  int64_t longer = 0;
  for (const auto& [length, times] : lengths.counts()) longer += length > tokens ? times : 0;
  const std::string beyond = longer == 0
                                 ? concat("none is ", fate)
                                 : concat(share_of(longer, lengths.count()), longer == 1 ? " is" : " are",
                                          " longer and ", fate, " (data.long_samples)");
  return {tokens, longer,
          concat(what, ": 99 % have at most ", grouped(most), " tokens, the longest ", grouped(longest), "; ",
                 beyond, ".")};
}

void choose_lengths(const Dataset& rows, const RowsModel& model, RowsFound& found) {
  LengthCounts inputs, targets, samples;
  for (int64_t i = 0; i < rows.size(); i++) {
    const auto [input, target] = rows.lengths(i);
    inputs.add(input);
    targets.add(target);
    samples.add(input + target);
  }
  if (model.encoder_decoder) {
    const ChosenLength input = choose_length(inputs, "Inputs"), target = choose_length(targets, "Targets");
    found.data.max_source_length = input.tokens;
    found.data.max_target_length = target.tokens;
    found.length_note = input.note;
    found.target_length_note = target.note;
  } else {
    const bool text = found.data.kind == DataKind::text;  // of it nothing need be lost
    const ChosenLength length =
        choose_length(samples, "Samples", model.positions, text ? "split" : "truncated");
    if (text && length.longer > 0) found.data.long_samples = LongSamples::split;
    found.data.max_length = length.tokens;
    found.length_note = length.note;
  }
}

void show_first_sample(const Dataset& rows, const Tokenizer& tokenizer) {
  const auto terminal = stderr_terminal();
  const bool colour = terminal && stderr_has_colour();
  log::info(concat("the first sample, as the model sees it; what it learns is ",
                   colour ? "in colour" : "in [[ ]]", ":"));
  int64_t first = 0;  // one that teaches something
  while (first + 1 < std::min<int64_t>(rows.size(), 100) &&
         supervised_tokens(rows.sample(first), rows.encoder_decoder()) == 0)
    first++;
  const SampleView view = view_of(rows.sample(first), rows.encoder_decoder(), rows.origin(first), tokenizer);
  for (const std::string& line : sample_lines(view, rows.report(), {0, colour})) log::info(line);
}

// The model's own template, or of those that come with the program the one that fits.
struct ChatRows {
  std::string chat_template, note;
  Dataset rows;
};

ChatRows open_chat_rows(const Config& base, const DataConfig& data, const InitOptions& options,
                        const RowsModel& model, const Tokenizer& tokenizer) {
  const std::optional<ChatTemplate> own = load_chat_template(model.path);
  const TemplateFit fit = fitting_template(tokenizer);
  DataConfig fitted = data;
  fitted.chat_template = fit.name;
  if (!own) {
    return {fit.name, concat("The model has no chat template: ", fit.name, " fits, as ", fit.reason, "."),
            opened(base, fitted, options, model, tokenizer)};
  }
  std::optional<Dataset> rows;
  try {
    rows = opened(base, data, options, model, tokenizer);
  } catch (const DataError&) {  // not one row fits the model's own template
    if (writes_functions(*own)) throw;
  }
  const int64_t bad = rows ? rows->report().malformed.count : 0;
  if (rows && (bad == 0 || writes_functions(*own))) return {"", "", std::move(*rows)};
  Dataset other = opened(base, fitted, options, model, tokenizer);
  if (rows && other.report().malformed.count >= bad) return {"", "", std::move(*rows)};
  const int64_t gained = rows ? bad - other.report().malformed.count : other.size();
  return {fit.name,
          concat("The model's own chat template writes no functions or their calls, which ",
                 counted(gained, "row"), gained == 1 ? " has: " : " have: ", fit.name, " does, and fits, as ",
                 fit.reason, "."),
          std::move(other)};
}

void note_bad_rows(const Dataset& rows, RowsFound& found) {
  const RowCount& bad = rows.report().malformed;
  if (bad.count == 0) return;
  found.data.bad_rows = BadRows::skip;
  found.bad_rows_note = concat(share_of(bad.count, found.rows),
                               " of the rows cannot be used and are skipped: ", reasons_text(rows),
                               ". The first: ", one_line(places(bad), 200), ".");
}

}  // namespace

FieldChoice settle_fields(const Columns& columns, const InitOptions& options, bool encoder_decoder) {
  log::info(concat("columns, in the first ", counted(columns.rows, "row"), ":"));
  for (const std::string& line : columns.lines()) log::info("  " + line);
  const FieldChoice given{kind_named(options.kind), options.input, options.target, ""};
  const FieldChoice choice = choose_columns(columns, given, encoder_decoder);
  if (choice.sure || options.yes) {
    log::info(concat("what is read: ", choice.input.empty() ? choice.reason : one_line(choice.input, 80),
                     choice.target.empty() ? "" : "; what is learned: ", one_line(choice.target, 80),
                     choice.input.empty() ? "" : concat(" (", choice.reason, ")")));
    return choice;
  }
  if (options.ask) return asked_fields(columns, choice, options, encoder_decoder);
  throw of_family(ErrorCode::data_fields,
                  ConfigError(concat(
                      "init: it is not clear which of the columns is the input, and which is the answer: ",
                      join_some(columns.names(), 20), ". Give them: ", shown_fields(choice),
                      " would be the guess, which --yes takes. Both can be templates: --input \"{a}\\n{b}\"; "
                      "--kind text learns all of --input")));
}

RowsFound look_at_rows(const Config& base, const FieldChoice& fields, const InitOptions& options,
                       const RowsModel& model) {
  RowsFound found;
  found.data = base.data;
  found.data.kind = fields.kind;
  found.data.input = fields.input;
  found.data.target = fields.target;
  if (!model.has_tokenizer && !std::filesystem::is_directory(model.path)) {  // only the shape of a model
    log::warning(concat("the rows are not read: ", model.path.string(), " has no tokenizer"));
    return found;
  }
  Config for_tokenizer = base;
  for_tokenizer.model.path = options.model_path;
  const std::unique_ptr<Tokenizer> tokenizer = load_run_tokenizer(for_tokenizer);
  const bool chat = fields.kind == DataKind::chat;
  ChatRows opened_rows = chat ? open_chat_rows(base, found.data, options, model, *tokenizer)
                              : ChatRows{"", "", opened(base, found.data, options, model, *tokenizer)};
  const Dataset& rows = opened_rows.rows;
  const DataReport& report = rows.report();
  found.looked_at = true;
  found.rows = report.rows;
  found.usable = report.rows - report.malformed.count;
  found.data.chat_template = opened_rows.chat_template;
  found.template_note = opened_rows.note;
  found.rows_note =
      concat(counted(found.usable, "row"), ": ", fields_text(report), " (", fields.reason, ").");
  note_bad_rows(rows, found);
  choose_lengths(rows, model, found);
  found.holds_out = can_hold_out(config_for(base, found.data, options), rows, *tokenizer);
  log_report("", report.lines());
  for (const std::string* note : {&found.template_note, &found.bad_rows_note})
    if (!note->empty()) log::info(*note);
  for (const std::string* note : {&found.length_note, &found.target_length_note})
    if (!note->empty()) log::info(*note);
  show_first_sample(rows, *tokenizer);
  return found;
}

}  // namespace trainer
