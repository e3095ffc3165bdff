// What is shown before the first step.
#pragma once

#include "trainer/data/report.h"
#include "trainer/observe/run.h"
#include "trainer/training/artefacts.h"
#include "trainer/training/progress.h"

#include "cli/core/run_plan.h"

namespace trainer {

void show_start(Run& run, const Config& config, const Artefacts& artefacts, Model& model, const RunPlan& plan,
                const RunDataReport& data, const RunLength& length, at::Device device);

}  // namespace trainer
