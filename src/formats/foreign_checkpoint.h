// Recognises checkpoints of other programs, which no run can resume from.
#pragma once

#include <filesystem>
#include <string>

namespace trainer {

// Returns what shows that another program wrote this directory: "Hugging Face's Trainer (optimizer.pt)"; ""
// if nothing does, or the directory is a checkpoint of this program. Reads only names of files.
std::string foreign_program(const std::filesystem::path& directory);

// Returns what a user does to start from the weights in a directory: "give it as model.path"; what is missing
// if they cannot be read.
std::string how_to_start_from(const std::filesystem::path& directory);

}  // namespace trainer
