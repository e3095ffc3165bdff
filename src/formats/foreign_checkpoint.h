// Recognises checkpoints of other programs, which no run can resume from.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace trainer {

// Returns what shows that another program wrote this directory: "Hugging Face's Trainer (optimizer.pt)"; ""
// if nothing does, or the directory is a checkpoint of this program. Reads only names of files.
std::string foreign_program(const std::filesystem::path& directory);

// A checkpoint of another program in a folder, and what shows it: "epoch_1 of another program, torchtune".
struct ForeignCheckpoint {
  std::filesystem::path path;
  std::string what;
};
// Returns the newest checkpoint of another program that is in the directory: torchtune's epoch_N,
// Accelerate's step_N, Lightning's *.ckpt and the like. Those named as this program's are left to
// foreign_program(). Reads only names of files.
std::optional<ForeignCheckpoint> foreign_checkpoint_in(const std::filesystem::path& directory);

// Returns what a user does to start from the weights in a directory: "give it as model.path"; what is missing
// if they cannot be read.
std::string how_to_start_from(const std::filesystem::path& directory);

}  // namespace trainer
