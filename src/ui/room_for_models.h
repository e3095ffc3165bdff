// The models of a run to chat with, and whether there is room for them beside the runs that train.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "ui/live_runs.h"

namespace trainer::ui {

// What a run has to chat with.
struct ModelsOfRun {
  std::filesystem::path result;  // its directory, or that of its newest checkpoint; "": nothing is saved yet
  std::string base;              // model.path of its configuration; "": not known
  bool result_converses = false, base_converses = false;  // they have chat templates
  int64_t result_bytes = 0, base_bytes = 0;               // of weights in files; 0: not known
};
ModelsOfRun models_of(const std::filesystem::path& run);

struct Room {
  std::string device;  // auto, cpu or cuda
  int64_t free = -1;   // bytes that the runs on it will not take; -1: not known
  bool on_gpu = false;
  std::string note;  // why it is another device than the one that was asked for, or what else runs there
};

// Returns the room that runs of this machine leave on a device. auto is the CPU while one of them is on a
// GPU. Asks `trainer doctor` for the memory of GPUs, only while one of them is on a GPU.
Room room_beside_runs(RunIndex& index, LiveRuns& live, const std::string& device);

// Throws OutOfMemoryError when models of so many bytes do not fit.
void require_room(const Room& room, int64_t result_bytes, int64_t base_bytes);

}  // namespace trainer::ui
