// trainer init [--model MODEL --data FILE --gpu SIZE --out FILE]
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <unistd.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/foreign_errors.h"
#include "cli/commands.h"
#include "cli/new_file.h"
#include "cli/open_core.h"
#include "cli/resolve_names.h"
#include "config/value.h"

namespace trainer::cli {
namespace {

struct InitWords {
  InitOptions options;
  std::vector<std::string> data;
};

bool asks(const InitWords& words) {
  return !words.options.yes && ::isatty(STDIN_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1;
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

// A name with blanks is one file if it exists, and several otherwise.
std::vector<std::string> split(const std::string& text) {
  if (std::filesystem::exists(text)) return {text};
  std::istringstream words(text);
  std::vector<std::string> parts;
  for (std::string part; words >> part;) parts.push_back(part);
  return parts;
}

void ask_for_missing(InitWords& words) {
  InitOptions& options = words.options;
  if (options.model.empty()) {
    options.model = options.ask("Model: its directory or name", "", [](const std::string& answer) {
      const bool is_path = answer.starts_with('/') || answer.starts_with('.');
      return is_path && !std::filesystem::exists(answer) ? answer + " does not exist" : std::string();
    });
  }
  if (words.data.empty()) {
    words.data =
        split(options.ask("Training data: files, folders or patterns", "", [](const std::string& answer) {
          for (const std::string& path : split(answer)) {
            const bool plain = path.find_first_of("*?[") == std::string::npos;
            if (plain && path.find('.') != std::string::npos && !std::filesystem::exists(path))
              return path + " does not exist";
          }
          return std::string();
        }));
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
  config.model.path = config::expand_home(config.model.path);
  for (DataSource& source : config.data.train) source.path = config::expand_home(source.path);
  resolve_names(config, {.model = hub::ModelParts::tokenizer, .adapter = false, .eval = false});
  options.model_path = config.model.path;
  options.data_paths = config.data.train;
}

// A folder under runs/ that no run has used.
std::string free_output_dir(const std::string& name) {
  std::string folder = "runs/" + name;
  std::error_code ignored;
  for (int64_t number = 2; std::filesystem::exists(folder, ignored); number++)
    folder = concat("runs/", name, "-", number);
  return folder;
}

bool agrees(const std::string& question, const std::string& otherwise) {
  const std::string answer = ask(question, otherwise, [](const std::string& word) {
    return std::string(word.starts_with('y') || word.starts_with('n') ? "" : "yes or no");
  });
  return answer.starts_with('y');
}

void require_words(const InitWords& words) {
  require_option(words.options.model, "init", "--model DIR");
  if (words.data.empty()) throw ConfigError("init: --data FILE is required; see trainer init --help");
  if (!words.options.yes && !words.options.ask)
    require_option(words.options.card, "init",
                   "--gpu SIZE (24GB, or cpu; --yes takes what this machine has)");
}

void run_init(InitWords& words) {
  InitOptions& options = words.options;
  if (!options.out.empty()) require_new_file(options.out, "init");
  bool asked = false;
  if (asks(words)) {
    options.ask = [&](const std::string& question, const std::string& otherwise, const auto& problem_of) {
      asked = true;
      return ask(question, otherwise, problem_of);
    };
    ask_for_missing(words);
  }
  require_words(words);
  if (options.out.empty()) options.out = default_name(options.model);
  require_new_file(options.out, "init");
  options.output_dir = free_output_dir(std::filesystem::path(options.out).stem().string());
  resolve(options, words.data);
  const InitOptions done = run_in_library(options);
  if (!done.problem.empty()) {
    if (!options.ask)
      throw Error(done.problem_code, concat("init: nothing is written, as `trainer doctor` would refuse the "
                                            "configuration:\n  ",
                                            done.problem));
    std::cerr << "\n`trainer doctor` would refuse this configuration:\n  " << printable(done.problem) << '\n';
  }
  if (asked) std::cerr << '\n' << done.yaml << '\n';
  const bool refused = !done.problem.empty();
  if (refused ? !agrees("Write " + options.out + " all the same?", "no")
              : asked && !agrees("Write " + options.out + "?", "yes"))
    return;
  write_new_file(options.out, done.yaml, "init");
  std::cout << "written: " << options.out << '\n';
  if (!done.verdict.empty()) std::cout << "doctor: " << done.verdict << '\n';
  std::cout << "next: trainer --config " << options.out << '\n';
}

}  // namespace

void add_init(CLI::App& command) {
  auto words = std::make_shared<InitWords>();
  command
      .add_option("-m,--model", words->options.model,
                  "A model directory, a name on the hub, or one of configs/models")
      ->type_name("DIR");
  command
      .add_option(
          "-d,--data", words->data,
          "Training data: a file, folder or pattern, or a name on the hub; can be given several times")
      ->type_name("FILE");
  command.add_option("--gpu,--card", words->options.card, "Memory of the GPU: 24GB; or cpu")
      ->type_name("SIZE");
  command
      .add_option(
          "--input", words->options.input,
          "Column of the input, or a template such as \"Translate: {de}\" (default: found by the names)")
      ->type_name("TEXT");
  command
      .add_option("--target", words->options.target,
                  "Column of what is learned, or a template (default: the same)")
      ->type_name("TEXT");
  command.add_option("--kind", words->options.kind, "What a row is, like data.kind")
      ->capture_default_str()
      ->type_name("NAME")
      ->check(CLI::IsMember({"auto", "seq2seq", "completion", "text", "chat"}));
  command
      .add_option(
          "--method", words->options.method,
          "auto (the first that fits of: full for T5 and below 1 billion parameters, lora, qlora), full, "
          "lora or qlora")
      ->capture_default_str()
      ->type_name("NAME")
      ->check(CLI::IsMember({"auto", "full", "lora", "qlora"}));
  command
      .add_option("-o,--out", words->options.out,
                  "File to write, which must not exist (default: the model's name.yaml)")
      ->type_name("FILE");
  command.add_flag("-y,--yes", words->options.yes,
                   "Ask nothing: take what was found, and this machine's GPU or CPU");
  command.footer(
      "On a terminal it asks for what is missing and not clear. Reads all rows, and shows the first as the "
      "model\n"
      "will see it. The file is only written if `trainer doctor` would accept it. Never overwrites a file.");
  command.callback([words] { run_init(*words); });
}

}  // namespace trainer::cli
