// The presets that come with the program: configs/*.yaml.
#pragma once

#include <filesystem>
#include <optional>
#include <ostream>
#include <string>

namespace trainer {

// The file of a preset: flan_t5_xl.yaml, configs/flan_t5_xl.yaml or flan_t5_xl. Returns nullopt if there is
// none of this name, and for paths that lead elsewhere.
std::optional<std::filesystem::path> find_preset(const std::filesystem::path& name);

// Returns the file of a chat template that comes with the program, configs/chat_templates/chatml.jinja for
// "chatml"; what was given if it names a file or no such template.
std::string chat_template_file(const std::string& given);

// Writes the name of each preset with the first sentence of its comment, and the folder with their files.
// Throws ConfigError if they are not there.
void write_presets(std::ostream& out);

}  // namespace trainer
