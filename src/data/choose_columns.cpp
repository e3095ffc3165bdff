// Which columns are read, and which are learned: by their names, and if those say nothing, by their texts.
#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/text.h"
#include "data/columns.h"
#include "data/fields.h"

namespace trainer {
namespace {

// What a question may need to be understood; it is put before it.
constexpr std::array<std::string_view, 9> kContexts{"context",    "passage",       "paragraph",
                                                    "background", "knowledge",     "document",
                                                    "article",    "system_prompt", "system"};
constexpr std::array<std::string_view, 5> kQuestions{"question", "query", "prompt", "instruction", "problem"};

// Codes of languages (ISO 639-1), and their names in English.
constexpr std::array<std::string_view, 80> kLanguages{
    "en",      "de",     "fr",      "es",         "it",        "pt",      "nl",       "pl",       "ru",
    "uk",      "cs",     "sk",      "sl",         "hr",        "sr",      "bg",       "ro",       "hu",
    "fi",      "et",     "lv",      "lt",         "sv",        "da",      "no",       "nb",       "is",
    "el",      "tr",     "ar",      "he",         "fa",        "hi",      "bn",       "ta",       "te",
    "ur",      "th",     "vi",      "id",         "ms",        "zh",      "ja",       "ko",       "sw",
    "af",      "ga",     "cy",      "eu",         "ca",        "gl",      "la",       "eo",       "mt",
    "english", "german", "french",  "spanish",    "italian",   "dutch",   "polish",   "russian",  "czech",
    "swedish", "danish", "finnish", "portuguese", "ukrainian", "turkish", "arabic",   "hebrew",   "hindi",
    "chinese", "korean", "greek",   "hungarian",  "romanian",  "latin",   "japanese", "norwegian"};

template <size_t N>
bool is_one_of(const std::string& name, const std::array<std::string_view, N>& names) {
  return std::ranges::find(names, lower_case(name)) != names.end();
}

// Languages whose codes are also words that name columns of other things.
constexpr std::array<std::string_view, 5> kWords{"id", "no", "is", "it", "la"};

// "translation.de" is called "de".
std::string last_part(const std::string& name) { return name.substr(name.rfind('.') + 1); }

// As data.input and data.target name a column.
std::string named(const Column& column) {
  return column.is_text() ? column.name : concat("{", column.name, "}");
}

const Column* readable(const Columns& columns, std::string_view name) {
  for (const Column& column : columns.all) {
    const std::string last = lower_case(last_part(column.name)), whole = lower_case(column.name);
    const bool first_of_list = whole == concat(name, ".text.0");  // SQuAD's answers
    if (column.is_readable() && (whole == name || last == name || first_of_list)) return &column;
  }
  return nullptr;
}

std::string shown_columns(const Columns& columns) { return join_some(columns.names(), 20); }

class Chooser {
 public:
  Chooser(const Columns& columns, const FieldChoice& given, bool encoder_decoder)
      : columns_(columns), given_(given), encoder_decoder_(encoder_decoder) {}

  FieldChoice choose() {
    if (!given_.input.empty()) check_template(columns_, given_.input, "--input");
    if (!given_.target.empty()) check_template(columns_, given_.target, "--target");
    const bool named = !given_.input.empty() || !given_.target.empty();
    if (named && given_.kind == DataKind::chat)
      throw ConfigError("init: --kind chat takes conversations, and no --input or --target; leave one out");
    if (given_.kind == DataKind::text) return running_text(given_.input);
    if (!given_.input.empty() && !given_.target.empty()) return pair(given_.input, given_.target, "as given");
    const bool may_be_chat = !named && (given_.kind == DataKind::automatic || given_.kind == DataKind::chat);
    if (const auto chat = may_be_chat ? conversations() : std::nullopt) return *chat;
    if (given_.kind == DataKind::chat)
      throw ConfigError(
          concat("init: --kind chat needs a column messages or conversations, or instruction and "
                 "output; there are ",
                 shown_columns(columns_)));
    if (const auto known = known_pair()) return *known;
    if (const auto languages = named ? std::nullopt : two_languages()) return *languages;
    return named ? rest_of_given() : guess();
  }

 private:
  FieldChoice pair(std::string input, std::string target, std::string reason, bool sure = true) const {
    return {encoder_decoder_ ? DataKind::seq2seq : DataKind::completion, std::move(input), std::move(target),
            std::move(reason), sure};
  }

  FieldChoice running_text(std::string input) const {
    if (encoder_decoder_)
      throw ConfigError(
          concat("init: an encoder-decoder learns a target from an input, and not running text; give "
                 "--input and --target; the columns are ",
                 shown_columns(columns_)));
    const Column* text = readable(columns_, "text");
    if (input.empty() && text == nullptr) {
      const std::vector<const Column*> texts = text_columns();
      if (!texts.empty()) text = texts.front();
    }
    if (input.empty() && text == nullptr) throw_no_text();
    return {DataKind::text, input.empty() ? text->name : input, "", "running text: all of it is learned",
            true};
  }

  std::optional<FieldChoice> conversations() const {
    for (const char* name : {"messages", "conversations"}) {
      if (columns_.find(name) != nullptr)
        return FieldChoice{DataKind::chat, "", "", concat("conversations, in \"", name, "\"")};
    }
    for (const Column& column : columns_.all) {
      if (column.type == "messages")
        throw DataError(
            concat("the column \"", column.name,
                   "\" holds conversations, and they are read from a column named \"messages\": rename "
                   "it in the data"));
    }
    const bool alpaca = columns_.find("instruction") != nullptr && columns_.find("output") != nullptr;
    if (!alpaca) return std::nullopt;
    return FieldChoice{encoder_decoder_ ? DataKind::automatic : DataKind::chat, "", "",
                       "instructions and their outputs, as Alpaca has them"};
  }

  // The question, after what is needed to understand it.
  std::string with_context(const Column& question) const {
    if (!is_one_of(last_part(question.name), kQuestions)) return named(question);
    std::string before, after;
    for (const Column& column : columns_.all) {
      if (column.is_text() && &column != &question && is_one_of(column.name, kContexts))
        before += concat("{", column.name, "}\n\n");
      if (column.is_text() && lower_case(column.name) == "input" &&
          lower_case(question.name) == "instruction")
        after += concat("\n{", column.name, "}");
    }
    return before.empty() && after.empty() ? named(question) : concat(before, "{", question.name, "}", after);
  }

  std::optional<FieldChoice> known_pair() const {
    const bool text_first = given_.kind == DataKind::automatic && !encoder_decoder_ && given_.target.empty();
    for (const KnownPair& known : known_pairs()) {
      const Column *input = readable(columns_, known.input), *target = readable(columns_, known.target);
      const bool has_input = !given_.input.empty() || input != nullptr,
                 has_target = !given_.target.empty() || target != nullptr;
      if (!has_input || !has_target || (input == target && input != nullptr)) continue;
      const bool of_instruction = known.input == std::string_view("input") && given_.input.empty() &&
                                  readable(columns_, "instruction") != nullptr;
      if (of_instruction) continue;  // the input is only a part of the question
      FieldChoice choice =
          pair(given_.input.empty() ? with_context(*input) : given_.input,
               given_.target.empty() ? named(*target) : given_.target,
               concat("as \"", known.input, "\" and \"", known.target, "\" are usually meant"));
      // A number may be an id, and the label of a text only one of its properties.
      choice.sure =
          target == nullptr || target->is_text() || !text_first || known.target == std::string_view("label");
      return choice;
    }
    return std::nullopt;
  }

  std::optional<FieldChoice> two_languages() const {
    std::vector<const Column*> languages;
    for (const Column& column : columns_.all) {
      const bool other = is_one_of(column.name, kWords);
      if (column.is_text() && !other && is_one_of(last_part(column.name), kLanguages))
        languages.push_back(&column);
    }
    if (languages.size() < 2) return std::nullopt;
    return pair(languages[0]->name, languages[1]->name, "one text in two languages; the direction is a guess",
                /*sure=*/false);
  }

  std::vector<const Column*> text_columns() const {
    std::vector<const Column*> texts;
    for (const Column& column : columns_.all) {
      if (column.is_text() && column.filled > 0 && !column.numbers) texts.push_back(&column);
    }
    return texts;
  }

  // One of the two is given.
  FieldChoice rest_of_given() const {
    const bool has_input = !given_.input.empty();
    const TextTemplate known = TextTemplate::parse(has_input ? given_.input : given_.target, "init");
    for (const Column* column : text_columns()) {
      if (std::ranges::find(known.fields(), column->name) != known.fields().end()) continue;
      return has_input ? pair(given_.input, column->name, "a guess", false)
                       : pair(column->name, given_.target, "a guess", false);
    }
    throw DataError(concat("there is no second column with text; the columns are ", shown_columns(columns_)));
  }

  FieldChoice guess() const {
    const std::vector<const Column*> texts = text_columns();
    if (texts.empty()) throw_no_text();
    const Column* text = readable(columns_, "text");
    if (!encoder_decoder_ && (text != nullptr || texts.size() == 1)) {
      FieldChoice choice = running_text(text != nullptr ? text->name : texts[0]->name);
      choice.sure = text != nullptr || columns_.all.size() == 1;
      return choice;
    }
    if (texts.size() == 1) return beside_one_text(*texts[0]);
    const Column* longest = *std::ranges::max_element(texts, {}, [](const Column* column) {
      return column->characters / std::max<int64_t>(column->filled, 1);
    });
    const Column* last = texts.back() != longest ? texts.back() : texts[texts.size() - 2];
    return pair(longest->name, last->name, "a guess: the longest text, and the last of the others", false);
  }

  // An encoder-decoder needs a target: what else there is.
  FieldChoice beside_one_text(const Column& text) const {
    for (const Column& column : columns_.all) {
      if (column.is_readable() && &column != &text && column.filled > 0)
        return pair(text.name, named(column), "a guess: the text, and what else there is", false);
    }
    throw DataError(
        concat("the rows have a column \"", text.name,
               "\" only, and an encoder-decoder learns a target from an input: add a column with the "
               "target, or train a decoder on running text"));
  }

  [[noreturn]] void throw_no_text() const {
    throw DataError(concat("no column has text; the columns are ", shown_columns(columns_)));
  }

  const Columns& columns_;
  const FieldChoice& given_;
  bool encoder_decoder_;
};

}  // namespace

void check_template(const Columns& columns, const std::string& text, const std::string& option) {
  const TextTemplate parsed = TextTemplate::parse(text, option);
  for (const std::string& field : parsed.fields()) {
    const Column* column = columns.find(field);
    const bool inside = column == nullptr && columns.find(field.substr(0, field.find('.'))) != nullptr &&
                        field.find('.') != std::string::npos;
    if (inside) continue;
    if (column == nullptr) {
      const std::string near = closest(field, columns.names());
      throw ConfigError(concat("init: ", option, ": there is no column \"", field, "\"; there are ",
                               shown_columns(columns),
                               near.empty() ? "" : concat("; did you mean ", near, "?")));
    }
    if (column->is_readable() || column->type == "empty") continue;
    throw ConfigError(concat("init: ", option, ": the column \"", field, "\" holds ",
                             column->type == "object" ? "objects"
                             : column->type == "list" ? "lists"
                                                      : column->type,
                             ", and text is needed",
                             column->type == "messages" ? "; leave --input and --target out" : ""));
  }
}

FieldChoice choose_columns(const Columns& columns, const FieldChoice& given, bool encoder_decoder) {
  return Chooser(columns, given, encoder_decoder).choose();
}

}  // namespace trainer
