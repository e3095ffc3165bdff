// What must not change between the starts of one run, as texts to compare and to show.
#pragma once

#include <map>
#include <string>

#include "trainer/config/config.h"

namespace trainer {

// By the key of the configuration: model and data by their contents, wherever they lie; the shape of the
// adapter; what is cut from the data; the samples of an update; the seed; what the optimizer keeps. Without
// model.dtype where that is auto. Reads the data files. Throws FormatError and DataError where files cannot
// be read.
std::map<std::string, std::string> fixed_settings(const Config& config);

// What tells the evaluation data from others, to know whether evaluations can be compared. Reads the files.
// Throws DataError.
std::string evaluation_data_text(const Config& config);

}  // namespace trainer
