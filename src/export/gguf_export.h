// A merged model as a GGUF file, and that file held against the model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "trainer/adapters/merged_model.h"
#include "trainer/formats/gguf.h"

namespace trainer {

// The matrices in `type` (none: as most of them are stored), vectors in fp32; where the rows of a matrix are
// no multiple of 32, fp16 stands for Q8_0. `name`: general.name. Returns the bytes of the weights. Throws
// FormatError that names what GGUF cannot say, and tensors whose values the type cannot hold.
int64_t write_gguf_model(const MergedModel& model, std::optional<GgufType> type, const std::string& name,
                         const std::filesystem::path& path);

// Reads the file again and compares every value: with the model's own, rounded to the type; in Q8_0 within
// half a step of its block. Returns what was seen, for a person. Throws FormatError that names the tensor.
std::string check_gguf_model(const MergedModel& model, const std::filesystem::path& path);

}  // namespace trainer
