// The safetensors format: an 8-byte little-endian header length, a JSON header (name -> dtype, shape, data_offsets),
// then the bytes. https://github.com/huggingface/safetensors (format section of its README)
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trainer/base/files.h"

namespace trainer {

enum class Dtype { f64, f32, f16, bf16, i64, i32, i16, i8, u8, boolean };

size_t dtype_size(Dtype dtype);          // bytes of one element
std::string dtype_name(Dtype dtype);     // "F32", "BF16", ...

// A tensor's bytes in a mapped file, or anywhere else when writing.
struct TensorView {
  Dtype dtype;
  std::vector<int64_t> shape;
  std::byte* data;  // writable: writes to a mapped file stay private
  size_t nbytes;
};

// An open safetensors file; the views stay valid as long as `mapping` lives.
struct SafetensorsFile {
  std::shared_ptr<const MappedFile> mapping;
  std::map<std::string, TensorView> tensors;
  std::map<std::string, std::string> metadata;
};

// Throws FormatError naming file, tensor and what is wrong: truncated file, header that is no JSON or lies about
// offsets (overlap, out of the file, size that is not shape x dtype), unknown dtype, duplicate name.
SafetensorsFile read_safetensors(const std::filesystem::path& path);

// Writes all tensors atomically, in the order of their names, data aligned to 8 bytes; metadata gets
// {"format": "pt"}. Throws FormatError when it cannot be written; nothing half-written stays.
void write_safetensors(const std::filesystem::path& path, const std::map<std::string, TensorView>& tensors,
                       std::map<std::string, std::string> metadata = {});

}  // namespace trainer
