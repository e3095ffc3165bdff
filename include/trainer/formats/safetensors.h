// The safetensors format: an 8-byte little-endian header length, a JSON header (name -> dtype, shape,
// data_offsets), then the bytes. https://github.com/huggingface/safetensors (format section of its README)
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "trainer/base/files.h"

namespace trainer {

enum class Dtype { f64, f32, f16, bf16, i64, i32, i16, i8, u8, boolean };

size_t dtype_size(Dtype dtype);       // bytes of one element
std::string dtype_name(Dtype dtype);  // "F32", "BF16", ...

// The bytes of a tensor of this shape. Throws FormatError (starting with `where`) when a size is negative or
// the product does not fit into 63 bits.
size_t tensor_bytes(Dtype dtype, const std::vector<int64_t>& shape, const std::string& where);

// A tensor's bytes in a mapped file, or anywhere else when writing. In a mapped file they may lie at an
// address that is no multiple of the element's size when another program than the reference library wrote the
// file.
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

// Refuses what the reference library refuses. Throws FormatError naming file, tensor and what is wrong:
// truncated file, header that is no JSON or lies about offsets (overlap, gap, out of the file, size that is
// not shape x dtype), unknown dtype, duplicate name.
SafetensorsFile read_safetensors(const std::filesystem::path& path);

// A tensor to write whose bytes are produced when its turn comes, so that a model on a device passes through
// host memory one tensor at a time. `write` writes exactly shape x dtype bytes.
struct TensorSource {
  Dtype dtype;
  std::vector<int64_t> shape;
  std::function<void(std::ostream&)> write;
};
using TensorSources = std::map<std::string, TensorSource>;
TensorSources sources_of(
    const std::map<std::string, TensorView>& tensors);  // the views must outlive the sources

// Writes all tensors atomically, in the order of the reference library (larger element types first, then by
// name), so that each is aligned to its element; data starts at a multiple of 8 bytes; metadata gets
// {"format": "pt"}. Throws FormatError when it cannot be written; nothing half-written stays.
void write_safetensors(const std::filesystem::path& path, const TensorSources& tensors,
                       std::map<std::string, std::string> metadata = {});
void write_safetensors(const std::filesystem::path& path, const std::map<std::string, TensorView>& tensors,
                       std::map<std::string, std::string> metadata = {});

}  // namespace trainer
