// Writes a merged model as a GGUF file, and compares that file with the model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "trainer/formats/gguf.h"

#include "adapters/merged_model.h"

namespace trainer {

// Writes matrices in `type` (none: as most of them are stored) and vectors in fp32. If the row length of a
// matrix is not a multiple of 32, it gets fp16 instead of Q8_0. `name`: general.name. Returns the bytes of
// the weights. Throws FormatError that names what GGUF cannot express, and tensors whose values are out of
// the type's range.
int64_t write_gguf_model(const MergedModel& model, std::optional<GgufType> type, const std::string& name,
                         const std::filesystem::path& path);

// Reads the file again and compares every value with the model's own, rounded to the type; in Q8_0 within
// half a step of its block. Returns a report for the user. Throws FormatError that names a tensor that
// differs.
std::string check_gguf_model(const MergedModel& model, const std::filesystem::path& path);

}  // namespace trainer
