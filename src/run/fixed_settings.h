// The settings that must not change when a run resumes, as texts to compare and to show.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "trainer/config/config.h"
#include "trainer/formats/run_position.h"

namespace trainer {

// The day that the chat template is told (data.template_date), for runs on chat data and others alike.
inline constexpr const char* kTemplateDate = "data.template_date";

// Returns the keys that the schema marks (config/on_resume.h), each with its value or with the
// content that it names: model and data may move to another path. A key that names several files has an entry
// for each: "model.path tokenizer.json". Keys whose changes are only logged are included. model.dtype is left
// out when it is auto, and data.template_date when it is empty. Reads the data files and the weights. Throws
// FormatError and DataError when files cannot be read.
std::map<std::string, std::string> fixed_settings(const Config& config);

// Returns the same entries for those files of model, tokenizer, adapter and chat template that are read in a
// moment, and for config.json and generation_config.json. Throws FormatError.
std::map<std::string, std::string> small_inputs(const Config& config);

// Returns what identifies a teacher, a model or an adapter directory. Reads a small part of the weights.
std::string teacher_text(const std::filesystem::path& directory);

// Returns the keys that say how rows become samples, with their values.
std::map<std::string, std::string> settings_of_rows(const Config& config);

// Copies from `saved` to `now` the entries that are known only after model and data are loaded.
void keep_open_settings(const std::map<std::string, std::string>& saved,
                        std::map<std::string, std::string>& now);

// Compares the settings that an earlier start saved with those of this start. An entry that only `now` has is
// no difference: an earlier version of the program saved the others. Neither is a checksum of the weights as
// an earlier version computed it. Logs the differences that are accepted, each line once (`logged`). Throws
// FormatError that names every other difference with both values. `where` is the path that `saved` was read
// from.
void check_fixed_settings(const std::map<std::string, std::string>& saved,
                          const std::map<std::string, std::string>& now, const Config& config,
                          const std::string& where, std::set<std::string>& logged);

// The same check for the samples that the data give (data/measure.h). It finds changes that no
// key shows. Stores `samples` in position.fixed.
void check_samples(RunPosition& position, const std::string& samples, int64_t epoch_size,
                   const Config& config);

// Returns a text that identifies the evaluation data: evaluations with the same text can be compared. Reads
// the files. Throws DataError.
std::string evaluation_data_text(const Config& config);

}  // namespace trainer
