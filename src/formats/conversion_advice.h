// What to tell the owner of a .bin pickle: one command that turns it into safetensors.
#pragma once

#include <filesystem>
#include <string>

namespace trainer {

// Both need Python with the Hugging Face libraries and work in place, beside the pickle.
std::string model_conversion_command(const std::filesystem::path& directory);
std::string adapter_conversion_command(const std::filesystem::path& directory);

}  // namespace trainer
