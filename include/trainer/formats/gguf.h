// GGUF version 3: typed metadata, the tensors' names and shapes, then their bytes at multiples of 32.
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "trainer/base/files.h"

namespace trainer {

// Their numbers in the file.
enum class GgufType : uint32_t { f32 = 0, f16 = 1, q5_0 = 6, q8_0 = 8, q4_k = 12, q6_k = 14, bf16 = 30 };

std::string gguf_type_name(GgufType type);  // "Q8_0"
// Returns the number of bytes of a tensor [rows..., columns]. Throws FormatError (the message starts with
// `where`) when a size is negative, when the product does not fit into 63 bits, or when the columns are not a
// multiple of the type's block size.
size_t gguf_bytes(GgufType type, const std::vector<int64_t>& shape, const std::string& where);

using GgufValue =
    std::variant<uint32_t, float, bool, std::string, std::vector<std::string>, std::vector<int32_t>,
                 std::vector<float>, std::vector<bool>, std::vector<uint8_t>>;
using GgufMetadata = std::vector<std::pair<std::string, GgufValue>>;  // in the order of the file

// A tensor to write. Its bytes are produced only when it is written.
struct GgufSource {
  std::string name;
  GgufType type;
  std::vector<int64_t> shape;                // as in the model, [rows, columns]
  std::function<void(std::ostream&)> write;  // exactly its bytes
};

// Writes the file atomically, with the tensors in this order. Throws FormatError when it cannot be written.
void write_gguf(const std::filesystem::path& path, const GgufMetadata& metadata,
                const std::vector<GgufSource>& tensors);

struct GgufTensor {
  GgufType type;
  std::vector<int64_t> shape;
  const std::byte* data;
  size_t nbytes;
};

// An open file; tensors stay valid as long as `mapping` lives.
struct GgufFile {
  std::shared_ptr<const MappedFile> mapping;
  std::map<std::string, GgufValue> metadata;
  std::map<std::string, GgufTensor> tensors;
};

// Reads what write_gguf() can write: little-endian, version 3, the value and tensor types above. For any
// other or damaged file, throws a FormatError that names the file and the key or tensor.
GgufFile read_gguf(const std::filesystem::path& path);

}  // namespace trainer
