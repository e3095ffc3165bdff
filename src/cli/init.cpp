// trainer init [--model MODEL --data FILE --card SIZE --out FILE]
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <unistd.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/text.h"
#include "cli/commands.h"
#include "cli/new_file.h"
#include "cli/open_core.h"
#include "cli/resolve_names.h"

namespace trainer::cli {
namespace {

struct InitWords {
  InitOptions options;
  std::vector<std::string> data;
  std::string card, out;
  bool yes = false;
};

bool asks(const InitWords& words) {
  return !words.yes && ::isatty(STDIN_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1;
}

// The memory of a card in bytes, 0 for cpu. A bare number means GB.
std::optional<int64_t> card_bytes(const std::string& text) {
  if (text == "cpu") return 0;
  const bool bare = !text.empty() && text.find_first_not_of("0123456789.") == std::string::npos;
  const std::optional<int64_t> bytes = parse_byte_size(bare ? text + "GB" : text);
  return bytes && *bytes > 0 ? bytes : std::nullopt;
}

// Asks until `problem_of` has no objection. Nothing is written yet, so that the end of the input ends it all.
std::string ask(const std::string& question, const std::string& otherwise,
                const std::function<std::string(const std::string&)>& problem_of) {
  while (true) {
    std::cerr << question << (otherwise.empty() ? "" : " [" + otherwise + "]") << ": " << std::flush;
    std::string answer;
    if (!std::getline(std::cin, answer))
      throw ConfigError("init: ended before all was known; nothing is written");
    if (const size_t end = answer.find_last_not_of(" \t\r"); end != std::string::npos) answer.resize(end + 1);
    if (answer.empty()) answer = otherwise;
    const std::string problem = answer.empty() ? "an answer is needed; Ctrl-C ends" : problem_of(answer);
    if (problem.empty()) return answer;
    std::cerr << "  " << problem << '\n';
  }
}

std::vector<std::string> split(const std::string& text) {
  std::istringstream words(text);
  std::vector<std::string> parts;
  for (std::string part; words >> part;) parts.push_back(part);
  return parts;
}

void ask_for_missing(InitWords& words) {
  InitOptions& options = words.options;
  if (options.model.empty()) {
    options.model = ask("Model: its directory or name", "", [](const auto&) { return ""; });
  }
  if (words.data.empty()) {
    words.data = split(ask("Training data: files, folders or patterns", "", [](const std::string& answer) {
      for (const std::string& path : split(answer)) {
        const bool plain = path.find_first_of("*?[") == std::string::npos;
        if (plain && path.find('.') != std::string::npos && !std::filesystem::exists(path))
          return path + " does not exist";
      }
      return std::string();
    }));
  }
  if (words.card.empty()) {
    words.card = ask("Memory of the card (24GB), or cpu", "", [](const std::string& answer) {
      return std::string(card_bytes(answer) ? "" : "give a size such as 24GB, or cpu");
    });
  }
}

std::string default_name(const std::string& model) {
  std::string name = std::filesystem::path(model).lexically_normal().filename().string();
  if (name.empty()) name = std::filesystem::path(model).lexically_normal().parent_path().filename().string();
  return (name.empty() || name == "." ? "my" : name) + ".yaml";
}

// Names on the hub stay in the file; here their files are looked at.
void resolve(InitOptions& options, const std::vector<std::string>& data) {
  Config config;
  config.model.path = options.model;
  for (const std::string& path : data) config.data.train.emplace_back(path);
  options.data = config.data.train;
  resolve_names(config, {.model = hub::ModelParts::tokenizer, .adapter = false, .eval = false});
  options.model_path = config.model.path;
  options.data_paths = config.data.train;
}

void run_init(InitWords& words) {
  const bool asking = asks(words);
  if (!words.out.empty()) require_new_file(words.out, "init");
  const bool asked = asking && (words.options.model.empty() || words.data.empty() || words.card.empty());
  if (asking) ask_for_missing(words);
  require_option(words.options.model, "init", "--model DIR");
  if (words.data.empty()) throw ConfigError("init: --data FILE is required; see trainer init --help");
  require_option(words.card, "init", "--card SIZE (24GB, or cpu)");
  const std::optional<int64_t> card = card_bytes(words.card);
  if (!card) throw ConfigError(concat("init: --card ", words.card, ": give a size such as 24GB, or cpu"));
  words.options.card = *card;
  if (words.out.empty()) words.out = default_name(words.options.model);
  require_new_file(words.out, "init");
  words.options.output_dir = "runs/" + std::filesystem::path(words.out).stem().string();
  resolve(words.options, words.data);
  const std::string yaml = run_in_library(words.options).yaml;
  if (asked) {
    std::cerr << '\n' << yaml << '\n';
    const std::string answer = ask("Write " + words.out + "?", "yes", [](const std::string& word) {
      return std::string(word.starts_with('y') || word.starts_with('n') ? "" : "yes or no");
    });
    if (answer.starts_with('n')) return;
  }
  write_new_file(words.out, yaml, "init");
  std::cout << "written: " << words.out << "\nnext: trainer doctor --config " << words.out
            << "\n      trainer --config " << words.out << '\n';
}

}  // namespace

void add_init(CLI::App& command) {
  auto words = std::make_shared<InitWords>();
  command
      .add_option("-m,--model", words->options.model,
                  "A model directory, a name on the hub, or one of configs/models")
      ->type_name("DIR");
  command.add_option("-d,--data", words->data, "Training data; can be given several times")
      ->type_name("FILE");
  command.add_option("--card", words->card, "Memory of the GPU: 24GB; or cpu")->type_name("SIZE");
  command
      .add_option(
          "--method", words->options.method,
          "auto (the first that fits of: full for T5 and below 1 billion parameters, lora, qlora), full, "
          "lora or qlora")
      ->capture_default_str()
      ->type_name("NAME")
      ->check(CLI::IsMember({"auto", "full", "lora", "qlora"}));
  command
      .add_option("-o,--out", words->out,
                  "File to write, which must not exist (default: the model's name.yaml)")
      ->type_name("FILE");
  command.add_flag("-y,--yes", words->yes, "Ask nothing");
  command.footer(
      "On a terminal it asks for what is missing. Reads the first 256 rows, and of the model only "
      "config.json\n"
      "and the tokenizer. Never overwrites a file.");
  command.callback([words] { run_init(*words); });
}

}  // namespace trainer::cli
