// What must not change between the starts of one run, as texts to compare and to show.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "trainer/config/config.h"
#include "trainer/formats/run_position.h"

namespace trainer {

// The keys that the schema marks (trainer/config/on_resume.h), by value or by content: model and data are the
// same wherever they lie. What a key names in several files has an entry for each: "model.path
// tokenizer.json". Also the keys whose changes are only logged. Without model.dtype where that is auto. Reads
// the data files and the weights. Throws FormatError and DataError where files cannot be read.
std::map<std::string, std::string> fixed_settings(const Config& config);

// Takes over what a start that resumes leaves open until the model and the data are there.
void keep_open_settings(const std::map<std::string, std::string>& saved,
                        std::map<std::string, std::string>& now);

// Compares what an earlier start saved with this one's. An entry that only this one has is no difference: the
// other was written by an earlier version. Logs what is accepted, each line once (`logged`). Throws
// FormatError that names every other difference with both values; `where`: what was read.
void check_fixed_settings(const std::map<std::string, std::string>& saved,
                          const std::map<std::string, std::string>& now, const Config& config,
                          const std::string& where, std::set<std::string>& logged);

// The same for what the data amount to (trainer/data/samples_text.h), of which a change shows that no key
// knows of. Puts it into position.fixed.
void check_samples(RunPosition& position, const std::string& samples, int64_t epoch_size,
                   const Config& config);

// What tells the evaluation data from others, to know whether evaluations can be compared. Reads the files.
// Throws DataError.
std::string evaluation_data_text(const Config& config);

}  // namespace trainer
