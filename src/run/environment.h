// Where and with what a run was started, for people who look at it later.
#pragma once

#include <cstdint>
#include <filesystem>

#include <c10/core/Device.h>

#include "trainer/models/model.h"
#include "trainer/run/run_length.h"

namespace trainer {

// Adds this start to OUT/environment.json: versions, device, processor, memory, host, model, time
// and steps. Starts of a run that resumes stay; `keeps_results` is false for a new run. If the file cannot
// be written (disk full), a warning is logged.
void keep_environment(const std::filesystem::path& directory, Model& model, c10::Device device,
                      const RunLength& length, int64_t first_step, bool keeps_results);

}  // namespace trainer
