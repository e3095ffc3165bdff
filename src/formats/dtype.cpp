#include "formats/dtype.h"

#include <array>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

namespace trainer {
namespace {

struct DtypeEntry {
  Dtype dtype;
  const char* name;        // in a safetensors header
  const char* torch_name;  // in config.json
  size_t size;
};

constexpr std::array<DtypeEntry, 10> kDtypes{{
    {Dtype::f64, "F64", "float64", 8},
    {Dtype::f32, "F32", "float32", 4},
    {Dtype::f16, "F16", "float16", 2},
    {Dtype::bf16, "BF16", "bfloat16", 2},
    {Dtype::i64, "I64", "int64", 8},
    {Dtype::i32, "I32", "int32", 4},
    {Dtype::i16, "I16", "int16", 2},
    {Dtype::i8, "I8", "int8", 1},
    {Dtype::u8, "U8", "uint8", 1},
    {Dtype::boolean, "BOOL", "bool", 1},
}};

const DtypeEntry& entry(Dtype dtype) {
  for (const DtypeEntry& candidate : kDtypes) {
    if (candidate.dtype == dtype) return candidate;
  }
  throw std::logic_error("a Dtype that is not in the table");
}

}  // namespace

size_t dtype_size(Dtype dtype) { return entry(dtype).size; }
std::string dtype_name(Dtype dtype) { return entry(dtype).name; }
std::string torch_dtype_name(Dtype dtype) { return entry(dtype).torch_name; }

std::optional<Dtype> dtype_from_name(std::string_view name) {
  for (const DtypeEntry& candidate : kDtypes) {
    if (candidate.name == name) return candidate.dtype;
  }
  return std::nullopt;
}

size_t tensor_bytes(Dtype dtype, const std::vector<int64_t>& shape, const std::string& where) {
  int64_t bytes = 1;
  bool fits = true;
  for (int64_t size : shape) {
    if (size < 0) throw FormatError(concat(where, ": negative size in shape ", shape_string(shape)));
    fits = fits && !__builtin_mul_overflow(bytes, size, &bytes);
  }
  fits = fits && !__builtin_mul_overflow(bytes, static_cast<int64_t>(dtype_size(dtype)), &bytes);
  if (!fits) throw FormatError(concat(where, ": shape ", shape_string(shape), " is larger than any file"));
  return static_cast<size_t>(bytes);
}

}  // namespace trainer
