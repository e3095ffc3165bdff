// trainer tokenize --model DIR --input FILE [--decode | --chat]
#include <algorithm>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/config/load.h"
#include "trainer/text/chat_template.h"
#include "trainer/text/conversation.h"
#include "trainer/text/tokenizer.h"

#include "base/not_text.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/open_core.h"
#include "cli/resolve_names.h"
#include "config/presets.h"
#include "config/run_config.h"
#include "formats/json_file.h"
#include "formats/json_lines.h"
#include "formats/json_problem.h"
#include "text/tokenizer/json_reader.h"

namespace trainer::cli {
namespace {

// A conversation as it is trained on, for people.

std::string marked(const std::string& text, bool colour) {
  return colour ? "\x1b[32m" + text + "\x1b[0m" : "[[" + text + "]]";
}

std::string escaped(std::string_view text) { return one_line(text, std::numeric_limits<size_t>::max()); }

// Each line by itself, so that a colour never runs on into the next one.
void append_text(std::string& out, std::string_view text, bool learn, bool colour) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string line = escaped(text.substr(0, end));
    if (!line.empty()) out += learn ? marked(line, colour) : line;
    if (end == text.size()) return;
    out += "\n    ";
    text.remove_prefix(end + 1);
  }
}

std::string marked_text(const ChatTokens& chat, bool colour) {
  const std::string_view text = chat.text;
  std::string out = "    ";
  if (chat.ranges.empty()) {
    append_text(out, text, true, colour);
    return out;
  }
  size_t begin = 0;
  for (size_t i = 0; i < chat.ids.size();) {
    const bool learn = chat.learn[i];
    size_t end = begin;
    for (; i < chat.ids.size() && chat.learn[i] == learn; i++) end = std::max(end, chat.ranges[i].end);
    append_text(out, text.substr(begin, end - begin), learn, colour);
    begin = end;
  }
  append_text(out, text.substr(begin), false, colour);
  return out;
}

std::string marked_ids(const ChatTokens& chat, const Terminal& terminal) {
  const size_t width = std::max<size_t>(terminal.width, 40);
  std::string out = "   ";
  size_t column = 3;
  for (size_t i = 0; i < chat.ids.size(); i++) {
    const std::string id = std::to_string(chat.ids[i]);
    const std::string shown = chat.learn[i] ? marked(id, terminal.colour) : id;
    const size_t columns = 1 + (terminal.colour ? id : shown).size();
    if (column + columns > width) {
      out += "\n   ";
      column = 3;
    }
    out += " " + shown;
    column += columns;
  }
  return out;
}

// Returns how many tokens are learned, the text as the template writes it, and the ids. What is learned is in
// colour, or in [[ ]]. Control characters other than line breaks are written as escapes. Ends in a line
// break.
std::string chat_as_text(const ChatTokens& chat, const Terminal& terminal) {
  const int64_t supervised = std::ranges::count(chat.learn, true);
  return concat(grouped(std::ssize(chat.ids)), chat.ids.size() == 1 ? " token, " : " tokens, ",
                grouped(supervised), " of them supervised", terminal.colour ? " (in colour)" : " (in [[ ]])",
                "\n\n", marked_text(chat, terminal.colour), "\n\n", marked_ids(chat, terminal), "\n");
}

using Json = nlohmann::ordered_json;

struct Options {
  std::string model, input, chat_template, loss_on = "all_turns", learn_reasoning = "auto",
                                           unknown_marks = "error";
  bool decode = false, skip_special_tokens = false, offsets = false, chat = false;
  std::string run_input;  // data.input of the run that the model comes from
};

Json parse(const std::string& line) {
  if (nested_too_deep(line)) throw DataError("is nested too deep");
  try {
    return parse_ordered_json(line);
  } catch (const Json::parse_error& error) {
    const std::string problem = json_problem(line, JsonEnd::line);
    throw DataError(concat("malformed JSON", problem.empty() ? concat(" near column ", error.byte) : "", ": ",
                           problem.empty() ? "each line must be one row" : problem));
  } catch (const Json::out_of_range&) {
    throw DataError(concat("has the number ", one_line(number_beyond_64_bits(line).value_or(""), 40),
                           ", which does not fit in 64 bits; write it as a string, in quotes"));
  }
}

// "found 'tex'": what a row without its field has instead.
std::string fields_of(const Json& row) {
  std::vector<std::string> names;
  for (const auto& entry : row.items()) names.push_back("'" + entry.key() + "'");
  return names.empty() ? "it is empty" : "it has " + join_some(names);
}

const Json& field(const Json& row, const char* name) {
  if (!row.is_object())
    throw DataError(concat("expected a row {\"", name, "\": ...}, found ", row.type_name()));
  const auto found = row.find(name);
  if (found == row.end()) throw DataError(concat("the row has no field '", name, "'; ", fields_of(row)));
  return *found;
}

// Returns how many characters begin before each byte, and in the whole text.
std::vector<size_t> characters_before(const std::string& text) {
  std::vector<size_t> counts{0};
  for (const char byte : text) {
    const bool begins = (static_cast<unsigned char>(byte) & 0xc0) != 0x80;
    counts.push_back(counts.back() + (begins ? 1 : 0));
  }
  return counts;
}

Json encode(const Tokenizer& tokenizer, const Json& row, bool offsets) {
  const Json& value = field(row, "text");
  if (!value.is_string()) throw DataError(concat("'text' must be a string, found ", value.type_name()));
  const auto& text = value.get_ref<const std::string&>();
  if (!offsets) return {{"ids", tokenizer.encode(text, /*add_special_tokens=*/true)}};
  const TokenizedText tokenized = tokenizer.encode_with_ranges(text, /*add_special_tokens=*/true);
  const std::vector<size_t> characters = characters_before(text);
  Json pairs = Json::array();
  for (const auto& [begin, end] : tokenized.ranges) pairs.push_back({characters[begin], characters[end]});
  return {{"ids", tokenized.ids}, {"offsets", pairs}};
}

// Conversations to what a model is trained on.
class ChatRows {
 public:
  explicit ChatRows(const Options& options)
      : loss_on_(loss_on(options.loss_on)),
        learn_reasoning_(options.learn_reasoning == "auto" ? BoolOrAuto::automatic()
                                                           : BoolOrAuto(options.learn_reasoning == "true")),
        refuse_unknown_marks_(options.unknown_marks == "error") {
    if (!options.chat_template.empty()) {
      template_ = read_chat_template(options.chat_template, options.model);
    } else {
      template_ = load_chat_template(options.model);
    }
    if (!template_)
      throw FormatError(concat(options.model, ": has no chat template; give one with --chat-template FILE"));
  }

  ChatTokens encode(const Tokenizer& tokenizer, const std::string& line) const {
    const Json row = parse(line);
    if (const auto large = integer_beyond_64_bits(line))
      throw DataError(
          concat("has the integer ", *large, ", which is beyond 64 bits; write it as a string, in quotes"));
    const auto form = row.is_object() ? conversation_form(row) : std::nullopt;
    if (!form)
      throw DataError(concat("a row with messages, conversations, instruction and output, or prompt and ",
                             "completion as lists of messages is expected; ",
                             row.is_object() ? fields_of(row) : concat("found ", row.type_name())));
    const Conversation conversation = read_conversation(row, *form, loss_on_);
    if (refuse_unknown_marks_) refuse_unknown_marks(conversation, &*template_, loss_on_);
    return tokenize_chat(*template_, tokenizer, conversation, loss_on_, learn_reasoning_);
  }

 private:
  static LossOn loss_on(const std::string& name) {
    if (name == "everything") return LossOn::everything;
    return name == "last_turn" ? LossOn::last_turn : LossOn::all_turns;
  }

  LossOn loss_on_;
  BoolOrAuto learn_reasoning_;
  bool refuse_unknown_marks_;
  std::optional<ChatTemplate> template_;
};

Json to_json(const ChatTokens& chat) {
  Json mask = Json::array();
  for (const bool learn : chat.learn) mask.push_back(learn ? 1 : 0);
  Json json{{"text", chat.text}, {"ids", chat.ids}, {"mask", mask}};
  if (!chat.weights.empty()) json["weights"] = chat.weights;
  return json;
}

Json decode(const Tokenizer& tokenizer, const Json& row, bool skip_special_tokens) {
  const Json& numbers = field(row, "ids");
  if (!numbers.is_array())
    throw DataError(concat("'ids' must be a list of integers, found ", numbers.type_name()));
  std::vector<int32_t> ids;
  for (const Json& number : numbers) {
    const bool is_id =
        number.is_number_integer() && number >= 0 && number <= std::numeric_limits<int32_t>::max();
    if (!is_id) throw DataError(concat("'ids' must be a list of token ids, found ", number.dump(), " in it"));
    ids.push_back(number.get<int32_t>());
  }
  return {{"text", tokenizer.decode(ids, skip_special_tokens)}};
}

using Convert = std::function<std::string(const std::string& line, const std::string& place)>;

void convert_row(const Convert& convert, const std::string& line, const std::string& place) {
  try {
    std::cout << convert(line, place) << "\n";
  } catch (const DataError& error) {
    throw DataError(concat(place, ": ", error.what()));
  } catch (const FormatError& error) {  // in the chat template
    throw FormatError(concat(error.what(), " (at the row ", place, ")"));
  }
}

// Calls `convert` for each line that is not blank, with its place, and prints what it returns.
void convert_lines(std::istream& rows, const std::string& name, const Convert& convert) {
  int64_t number = 0;
  for (std::string line; std::getline(rows, line);) {
    number++;
    if (const std::string other = number == 1 ? not_text(line) : ""; !other.empty())
      throw DataError(concat(name, ": ", other));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    convert_row(convert, line, concat(name, ":", number));
  }
  if (rows.bad()) throw DataError(concat(name, ": cannot be read after line ", number));
}

// The same for any file that training reads. The library reads tables and the like.
void convert_rows(const Options& options, const Convert& convert) {
  if (options.input == "-") return convert_lines(std::cin, "stdin", convert);
  const std::string input = options.chat || options.decode ? "" : options.run_input;
  if (!is_json_lines(options.input) || !input.empty()) {
    const auto visit = [&](const std::string& json, const std::string& place) {
      convert_row(convert, json, place);
    };
    run_in_library(RowsOptions{options.input, "", input, visit});
    return;
  }
  std::ifstream file(options.input);
  if (!file) throw DataError(concat(options.input, ": cannot be opened; is the path right?"));
  convert_lines(file, options.input, convert);
}

// What the run has learned from its rows, where the command line does not say.
void take_over_data_of_run(Options& options, const CLI::App& command) {
  const auto run = config_of_run(options.model);
  if (!run) return;
  const auto take = [&](const char* option, const char* key, std::string& value) {
    if (command.count(option) == 0) value = value_text(*run, key);
  };
  take("--loss-on", "data.loss_on", options.loss_on);
  take("--learn-reasoning", "data.learn_reasoning", options.learn_reasoning);
  take("--unknown-marks", "data.unknown_marks", options.unknown_marks);
  if (command.count("--chat-template") == 0) options.chat_template = run->data.chat_template;
  options.run_input = run->data.input;
}

void tokenize(const Options& options) {
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(options.model);
  std::optional<ChatRows> chat;
  if (options.chat) chat.emplace(options);
  const std::optional<Terminal> terminal = chat ? stdout_terminal() : std::nullopt;
  const auto convert = [&](const std::string& line, const std::string& place) {
    if (chat) {
      const ChatTokens tokens = chat->encode(*tokenizer, line);
      return terminal ? concat(place, ": ", chat_as_text(tokens, *terminal)) : to_json(tokens).dump();
    }
    const Json row = parse(line);
    const Json converted = options.decode ? decode(*tokenizer, row, options.skip_special_tokens)
                                          : encode(*tokenizer, row, options.offsets);
    return converted.dump();
  };
  convert_rows(options, convert);
}

}  // namespace

void add_tokenize(CLI::App& command) {
  auto options = std::make_shared<Options>();
  command
      .add_option(
          "-m,--model", options->model,
          "A model or adapter directory with a tokenizer; of a run's result, rows are read as the run has")
      ->type_name("DIR");
  command
      .add_option("-i,--input", options->input,
                  "Any file of rows that training reads; - is stdin, JSON lines")
      ->type_name("FILE");
  CLI::Option* decode =
      command.add_flag("--decode", options->decode, "Convert rows {\"ids\": [...]} to {\"text\": ...}");
  command
      .add_flag("--skip-special-tokens", options->skip_special_tokens,
                "Leave special tokens such as </s> out of the text")
      ->needs(decode);
  command
      .add_flag("--offsets", options->offsets,
                "Also print where each id comes from: [begin, end) in characters of the text")
      ->excludes(decode);
  CLI::Option* chat = command.add_flag(
      "--chat", options->chat,
      "Convert rows with messages, conversations or instruction and output to text, ids and mask (1: "
      "supervised); on a terminal, print the text with the supervised part marked");
  chat->excludes(decode);
  command
      .add_option("--chat-template", options->chat_template,
                  "Chat template to use instead of the model's own")
      ->type_name("FILE")
      ->needs(chat);
  command.add_option("--loss-on", options->loss_on, "Which answers are supervised, like data.loss_on")
      ->check(CLI::IsMember({"all_turns", "last_turn", "everything"}))
      ->capture_default_str()
      ->needs(chat);
  command
      .add_option("--learn-reasoning", options->learn_reasoning,
                  "Whether reasoning is supervised, like data.learn_reasoning")
      ->check(CLI::IsMember({"auto", "true", "false"}))
      ->capture_default_str()
      ->needs(chat);
  command
      .add_option("--unknown-marks", options->unknown_marks,
                  "What happens to marks of other programs, like data.unknown_marks")
      ->check(CLI::IsMember({"error", "ignore"}))
      ->capture_default_str()
      ->needs(chat);
  command.callback([options, &command] {
    require_option(options->model, "tokenize", "--model DIR");
    require_option(options->input, "tokenize", "--input FILE");
    options->chat_template = chat_template_file(options->chat_template);
    options->model = resolve_model_name(options->model, hub::ModelParts::tokenizer);
    take_over_data_of_run(*options, command);
    tokenize(*options);
  });
}

}  // namespace trainer::cli
