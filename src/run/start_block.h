// The block of lines that is shown before the first step.
#pragma once

#include "trainer/data/report.h"
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

}  // namespace trainer
