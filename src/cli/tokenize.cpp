// trainer tokenize --model DIR --input FILE [--decode]
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/text/tokenizer.h"

#include "cli/commands.h"

namespace trainer::cli {
namespace {

using Json = nlohmann::json;

struct Options {
  std::string model, input;
  bool decode = false, skip_special_tokens = false;
};

// "found 'tex'": what a row without its field has instead.
std::string fields_of(const Json& row) {
  std::vector<std::string> names;
  for (const auto& entry : row.items()) names.push_back("'" + entry.key() + "'");
  return names.empty() ? "it is empty" : "it has " + join(names);
}

const Json& field(const Json& row, const char* name) {
  if (!row.is_object())
    throw DataError(concat("expected a row {\"", name, "\": ...}, found ", row.type_name()));
  const auto found = row.find(name);
  if (found == row.end()) throw DataError(concat("the row has no field '", name, "'; ", fields_of(row)));
  return *found;
}

Json encode(const Tokenizer& tokenizer, const Json& row) {
  const Json& text = field(row, "text");
  if (!text.is_string()) throw DataError(concat("'text' must be a string, found ", text.type_name()));
  return {{"ids", tokenizer.encode(text.get_ref<const std::string&>(), /*add_special_tokens=*/true)}};
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

Json parse(const std::string& line) {
  try {
    return Json::parse(line);
  } catch (const Json::parse_error& error) {
    throw DataError(concat("malformed JSON near column ", error.byte, ": each line must be one row"));
  }
}

// Calls `convert` for each line that is not blank and prints what it returns.
void convert_rows(std::istream& rows, const std::string& name,
                  const std::function<Json(const Json&)>& convert) {
  int64_t number = 0;
  for (std::string line; std::getline(rows, line);) {
    number++;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      std::cout << convert(parse(line)).dump() << "\n";
    } catch (const DataError& error) {
      throw DataError(concat(name, ":", number, ": ", error.what()));
    }
  }
  if (rows.bad()) throw DataError(concat(name, ": cannot be read after line ", number));
}

void run(const Options& options) {
  std::ifstream file;
  if (options.input != "-") {
    file.open(options.input);
    if (!file) throw DataError(concat(options.input, ": cannot be opened; is the path right?"));
  }
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(options.model);
  std::istream& rows = options.input == "-" ? std::cin : file;
  convert_rows(rows, options.input == "-" ? "stdin" : options.input, [&](const Json& row) {
    return options.decode ? decode(*tokenizer, row, options.skip_special_tokens) : encode(*tokenizer, row);
  });
}

}  // namespace

void add_tokenize_command(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("tokenize", "Rows {\"text\": ...} -> {\"ids\": [...]}, or the other way");
  command->add_option("-m,--model", options->model, "Model directory with its tokenizer")->type_name("DIR");
  command->add_option("-i,--input", options->input, "Rows of JSON; - is stdin")->type_name("FILE");
  CLI::Option* decode =
      command->add_flag("--decode", options->decode, "Rows {\"ids\": [...]} -> {\"text\": ...}");
  command
      ->add_flag("--skip-special-tokens", options->skip_special_tokens,
                 "Leave </s> and the like out of the text")
      ->needs(decode);
  command->callback([options] {
    require_option(options->model, "tokenize", "--model DIR");
    require_option(options->input, "tokenize", "--input FILE");
    run(*options);
  });
}

}  // namespace trainer::cli
