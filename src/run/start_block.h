// What is shown before the first step.
#pragma once

#include "trainer/data/report.h"
#include "trainer/run/artefacts.h"
#include "trainer/run/progress.h"
#include "trainer/run/run.h"
#include "trainer/run/run_plan.h"

namespace trainer {

void show_start(Run& run, const Config& config, const Artefacts& artefacts, Model& model, const RunPlan& plan,
                const RunDataReport& data, const RunLength& length, at::Device device);

}  // namespace trainer
