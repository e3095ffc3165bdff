// The block of lines that is shown before the first step.
#pragma once

#include "trainer/data/report.h"
#include "trainer/run/artefacts.h"
#include "trainer/run/output_directory.h"
#include "trainer/run/run_length.h"
#include "trainer/run/run_plan.h"

namespace trainer {

void show_start(OutputDirectory& output, const Config& config, const Artefacts& artefacts, Model& model,
                const RunPlan& plan, const RunDataReport& data, const RunLength& length, at::Device device);

}  // namespace trainer
