// The safetensors format: an 8-byte little-endian header length, a JSON header (name -> dtype, shape,
// data_offsets), then the bytes. https://github.com/huggingface/safetensors (format section of its README)
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/base/files.h"

namespace trainer {

enum class Dtype { f64, f32, f16, bf16, i64, i32, i16, i8, u8, boolean, f8_e4m3 };

size_t dtype_size(Dtype dtype);                               // bytes of one element
std::string dtype_name(Dtype dtype);                          // "F32", "BF16", ...
std::optional<Dtype> dtype_from_name(std::string_view name);  // nullopt for an unknown type
std::string torch_dtype_name(Dtype dtype);                    // "bfloat16", as in config.json

// Returns the number of bytes of a tensor of this shape. Throws FormatError (the message starts with `where`)
// when a size is negative or the product does not fit into 63 bits.
size_t tensor_bytes(Dtype dtype, const std::vector<int64_t>& shape, const std::string& where);

// A tensor's bytes in a mapped file, or anywhere in memory when writing. In a mapped file the address may not
// be aligned to the element's size, if the file was not written by the reference library.
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

// Refuses what the reference library refuses. Throws a FormatError that names file, tensor and problem: a
// truncated file, a header that is not JSON, wrong offsets (overlap, gap, beyond the end of the file, a size
// that is not shape x dtype), an unknown dtype, a duplicate name.
SafetensorsFile read_safetensors(const std::filesystem::path& path);

// A tensor to write. Its bytes are produced only when it is written, so that a model on a GPU passes through
// host memory one tensor at a time. `write` must write exactly shape x dtype bytes. Without `write`, the file
// has room for the tensor, which another process fills (fill_safetensors).
struct TensorSource {
  Dtype dtype;
  std::vector<int64_t> shape;
  std::function<void(std::ostream&)> write;
};
using TensorSources = std::map<std::string, TensorSource>;
TensorSources sources_of(
    const std::map<std::string, TensorView>& tensors);  // the views must outlive the sources

// Writes all tensors atomically, in the order of the reference library (larger element types first, then by
// name), so that each tensor is aligned to its element size. Data starts at a multiple of 8 bytes, and
// {"format": "pt"} is added to the metadata. Throws FormatError when the file cannot be written; no
// half-written file stays.
void write_safetensors(const std::filesystem::path& path, const TensorSources& tensors,
                       std::map<std::string, std::string> metadata = {});
void write_safetensors(const std::filesystem::path& path, const std::map<std::string, TensorView>& tensors,
                       std::map<std::string, std::string> metadata = {});

// Writes tensors into a file that has room for them, in place, and syncs it. Several processes may do so at
// once with different tensors. Throws FormatError when the file has no such tensor, or one of another shape
// or type; it has changed then.
void fill_safetensors(const std::filesystem::path& path, const TensorSources& tensors);

// The files of a model directory's weights.
inline constexpr const char* kSingleFile = "model.safetensors";
inline constexpr const char* kIndexFile = "model.safetensors.index.json";

}  // namespace trainer
