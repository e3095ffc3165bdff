// The report of a run's start: the block of lines before the first step, and environment.json.
#pragma once

#include <cstdint>
#include <filesystem>

#include <c10/core/Device.h>

#include "trainer/data/report.h"
#include "trainer/models/model.h"
#include "trainer/run/artefacts.h"
#include "trainer/run/run_length.h"

#include "observe/time_left.h"
#include "run/output_directory.h"
#include "run/run_plan.h"

namespace trainer {

// Returns where the run ends and what it does on the way.
RunOutlook outlook_of(const Config& config, const RunLength& length, bool evaluates);

// step: where the run begins or resumes.
void show_start(OutputDirectory& output, const Config& config, const Artefacts& artefacts, Model& model,
                const RunPlan& plan, const RunDataReport& data, const RunLength& length, int64_t step,
                at::Device device);

// Adds this start to OUT/environment.json: versions, device, processor, memory, host, model, time
// and steps. Starts of a run that resumes stay; `keeps_results` is false for a new run. If the file cannot
// be written (disk full), a warning is logged.
void keep_environment(const std::filesystem::path& directory, Model& model, c10::Device device,
                      const RunLength& length, int64_t first_step, bool keeps_results);

}  // namespace trainer
