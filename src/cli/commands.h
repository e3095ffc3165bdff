// The commands of the program: each adds itself, with its options, to the command line.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "trainer/base/error.h"

namespace trainer::cli {

void add_train_command(CLI::App& app);
void add_config_command(CLI::App& app);
void add_eval_command(CLI::App& app);
void add_generate_command(CLI::App& app);
void add_chat_command(CLI::App& app);
void add_init_command(CLI::App& app);
void add_import_config_command(CLI::App& app);
void add_merge_command(CLI::App& app);
void add_export_command(CLI::App& app);
void add_doctor_command(CLI::App& app);
void add_plan_command(CLI::App& app);
void add_data_command(CLI::App& app);
void add_report_command(CLI::App& app);
void add_tokenize_command(CLI::App& app);
void add_fetch_command(CLI::App& app);
void add_status_command(CLI::App& app);
void add_runs_command(CLI::App& app);
void add_completion_commands(CLI::App& app);
void add_help_command(CLI::App& app);

// CLI11 would name a missing option before an unknown one, which is more likely the mistake: so it is asked
// for here.
inline void require_option(const std::string& value, const std::string& command, const std::string& option) {
  if (value.empty())
    throw of_family(ErrorCode::command_line, ConfigError(command + ": " + option +
                                                         " is required; see trainer " + command + " --help"));
}

}  // namespace trainer::cli
