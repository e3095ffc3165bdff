// trainer help [TOPIC]
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/strings.h"

#include "base/wrap.h"
#include "cli/commands.h"
#include "cli/help_page.h"
#include "cli/man_page.h"

namespace trainer::cli {
namespace {

std::vector<const CLI::App*> listed_commands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
}

void list_topics() {
  const std::vector<HelpTopic> topics = help_topics();
  if (topics.empty())
    throw ConfigError("the pages are not there: install the program again", ExitCode::files);
  size_t width = 0;
  for (const HelpTopic& topic : topics) width = std::max(width, topic.name.size());
  for (const HelpTopic& topic : topics)
    std::cout << padded_right(topic.name, width + 2) << topic.title << '\n';
  std::cout << "\ntrainer help TOPIC shows a page, trainer help exit-5 an exit code, trainer help CODE the "
               "code of an\nerror, trainer help COMMAND the options of a command. trainer --help lists the "
               "commands.\n";
}

void show_topic(const CLI::App& app, const std::string& topic) {
  const auto commands = listed_commands(app);
  const auto command =
      std::ranges::find(commands, topic, [](const CLI::App* known) { return known->get_name(); });
  if (topic.starts_with("exit-")) {
    if (const auto page = exit_code_page(topic.substr(5))) {
      std::cout << *page;
      return;
    }
  }
  if (const auto page = error_page(topic)) {
    std::cout << *page;
    return;
  }
  if (const auto page = help_page(topic)) {
    std::cout << *page;
    if (command != commands.end()) std::cout << "\nOptions: trainer " << topic << " --help\n";
    return;
  }
  if (command != commands.end()) {
    std::cout << (*command)->help("trainer");
    return;
  }
  std::vector<std::string> names;
  for (const HelpTopic& known : help_topics()) names.push_back(known.name);
  for (const CLI::App* known : commands) names.push_back(known->get_name());
  for (const ErrorCode known : error_codes()) names.push_back(name_of(known));
  const std::string near = closest(topic, names);
  throw ConfigError(concat("help: there is no page '", topic, "'; ",
                           near.empty() ? "trainer help lists them" : "did you mean " + near + "?"));
}

void write_man_pages(const CLI::App& app, const std::filesystem::path& folder) {
  make_directories(folder);
  write_atomically(folder / "trainer.1", man_page(app, app));
  for (const CLI::App* command : listed_commands(app))
    write_atomically(folder / concat("trainer-", command->get_name(), ".1"), man_page(app, *command));
}

}  // namespace

void add_help_command(CLI::App& app) {
  auto topic = std::make_shared<std::string>();
  auto folder = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("help", "Show a page of the documentation; without TOPIC, list them");
  command->add_option("topic", *topic, "A page, the code of an error, exit-5 for an exit code, or a command")
      ->type_name("TOPIC");
  command->add_option("--man", *folder, "Write manual pages of all commands to this folder")
      ->type_name("DIR");
  command->callback([&app, topic, folder] {
    if (!folder->empty()) {
      write_man_pages(app, *folder);
    } else if (topic->empty()) {
      list_topics();
    } else {
      show_topic(app, *topic);
    }
  });
}

}  // namespace trainer::cli
