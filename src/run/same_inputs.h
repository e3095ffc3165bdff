// What each rank of a run reads or brings along by itself: files, libraries, its device. It must be the same
// for all, or they train different models and add up gradients that do not belong together.
#pragma once

#include <map>
#include <string>

#include "trainer/config/config.h"
#include "trainer/parallel/ranks.h"

#include "run/resume.h"
#include "run/run_parts.h"

namespace trainer {

// Compares the small files of model, tokenizer, adapter and chat template, before anything is loaded. If they
// differ, throws the same error on every rank, with each file and the ranks that have another than rank 0.
void check_same_files(const Config& config, const Ranks& ranks);

// Compares all else: weights, adapter, data, the index of the data and what is kept of it, libraries and
// environment variables that change results, device and type. `fixed`:
// fixed_settings() of this rank; `samples`: samples_text() of its training data. Throws FormatError,
// DataError and ConfigError as above. What changes only the last bits, such as another processor, is a
// warning.
void check_same_inputs(const RunParts& parts, const std::map<std::string, std::string>& fixed,
                       const std::string& samples);

// The same of the state that the run resumes from, once it is loaded.
void check_same_state(const RunParts& parts, const Resumption& start);

}  // namespace trainer
