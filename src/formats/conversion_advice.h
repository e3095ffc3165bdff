// Advice for users with a .bin pickle: one command that converts it to safetensors.
#pragma once

#include <filesystem>
#include <string>

namespace trainer {

// Both commands need Python with the Hugging Face libraries and write next to the pickle.
std::string model_conversion_command(const std::filesystem::path& directory);
std::string adapter_conversion_command(const std::filesystem::path& directory);

}  // namespace trainer
