#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <set>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/safetensors.h"

#include "base/not_text.h"
#include "formats/json_file.h"
#include "formats/json_problem.h"

namespace trainer {
namespace {

struct DtypeEntry {
  Dtype dtype;
  const char* name;        // in a safetensors header
  const char* torch_name;  // in config.json
  size_t size;
};

constexpr std::array<DtypeEntry, 11> kDtypes{{
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
    {Dtype::f8_e4m3, "F8_E4M3", "float8_e4m3fn", 1},
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

namespace {

using nlohmann::json;

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the reference library's limit
constexpr int kHeaderDepth = 8;                    // a header has 3 levels
constexpr const char* kDamagedAdvice = "the file is damaged or incomplete; copy or download it again";

// Returns the header's text after checking that it lies inside the file.
std::string_view header_text(const MappedFile& file, const std::string& where) {
  if (file.size() < kLengthBytes) {
    throw FormatError(
        concat(where, ": ", file.size(), " bytes are not a safetensors file; ", kDamagedAdvice));
  }
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; i++) {
    length |= static_cast<uint64_t>(std::to_integer<uint8_t>(file.data()[i])) << (8 * i);
  }
  if (length > kMaxHeaderBytes) {
    if (const std::string what = other_kind(file.text()); !what.empty())
      throw FormatError(concat(where, ": ", what));
    throw FormatError(concat(where, ": a header of ", length, " bytes; this is not a safetensors file"));
  }
  if (length > file.size() - kLengthBytes) {
    throw FormatError(concat(where, ": the header has ", length, " bytes, the file only ", file.size(), "; ",
                             kDamagedAdvice));
  }
  return file.text().substr(kLengthBytes, length);
}

// Parses the header and refuses duplicate keys in one object, which a JSON object would silently drop.
json parse_header(std::string_view text, const std::string& where) {
  const auto refuse = [&](std::string_view why) {
    throw FormatError(concat(where, ": the header is not JSON", why, "; ", kDamagedAdvice));
  };
  // The parser treats a NUL as the end of its input.
  if (text.find('\0') != std::string_view::npos) refuse(": it has a byte 0");
  JsonStructure structure;
  std::array<std::set<std::string>, kHeaderDepth + 1> keys;  // of the open objects, by their depth
  structure.open = [&](int depth) {
    if (depth > kHeaderDepth)
      throw FormatError(concat(where, ": the header is nested too deeply; ", kDamagedAdvice));
    keys[static_cast<size_t>(depth)].clear();
  };
  std::string entry;  // the name whose value is read
  structure.name = [&](int depth, const std::string& key) {
    if (depth == 1) entry = key;
    if (keys[static_cast<size_t>(depth)].insert(key).second) return;
    const bool is_tensor = entry != "__metadata__";
    throw FormatError(concat(where, is_tensor ? concat(": tensor '", entry, "'") : ": " + entry,
                             depth == 1 ? "" : concat(": the key '", key, "'"), " occurs twice; ",
                             kDamagedAdvice));
  };
  json header;
  try {
    structure.walk(text);
    header = json::parse(text);
  } catch (const json::out_of_range&) {
    refuse(": it has a number that is too large");
  } catch (const json::exception&) {
    const auto problem = find_json_problem(text, JsonEnd::whole_file);
    refuse(problem ? concat(": byte ", problem->byte + 1, " of it: ", problem->what) : "");
  }
  if (!header.is_object())
    throw FormatError(concat(where, ": the header is not a JSON object; ", kDamagedAdvice));
  return header;
}

std::map<std::string, std::string> parse_metadata(const json& value, const std::string& where) {
  std::map<std::string, std::string> metadata;
  if (value.is_null()) return metadata;
  if (!value.is_object()) throw FormatError(concat(where, ": __metadata__ is not a JSON object"));
  for (const auto& [key, item] : value.items()) {
    if (!item.is_string()) throw FormatError(concat(where, ": __metadata__: '", key, "' is not a string"));
    metadata[key] = item.get<std::string>();
  }
  return metadata;
}

// A list of whole numbers that are not negative.
std::vector<uint64_t> parse_numbers(const json& entry, const char* key, const std::string& where) {
  const auto found = entry.find(key);
  std::vector<uint64_t> numbers;
  bool valid = found != entry.end() && found->is_array();
  if (valid) {
    for (const json& number : *found) {
      valid = valid && number.is_number_unsigned();
      if (valid) numbers.push_back(number.get<uint64_t>());
    }
  }
  if (!valid)
    throw FormatError(concat(where, ": ", key, " is not a list of whole numbers; ", kDamagedAdvice));
  return numbers;
}

struct Entry {
  std::string name;
  Dtype dtype;
  std::vector<int64_t> shape;
  uint64_t begin, end;
};

Entry parse_entry(const std::string& name, const json& value, const std::string& where) {
  if (!value.is_object() || !value.contains("dtype") || !value["dtype"].is_string()) {
    throw FormatError(concat(where, ": has no dtype in the header; ", kDamagedAdvice));
  }
  const std::string dtype_text = value["dtype"].get<std::string>();
  const std::optional<Dtype> dtype = dtype_from_name(dtype_text);
  if (!dtype) {
    throw FormatError(
        concat(where, ": dtype ", dtype_text, " is not supported; save the model in BF16, F16 or F32"));
  }
  Entry entry{name, *dtype, {}, 0, 0};
  for (uint64_t size : parse_numbers(value, "shape", where)) {
    if (size > std::numeric_limits<int64_t>::max()) {
      throw FormatError(concat(where, ": size ", size, " in its shape; ", kDamagedAdvice));
    }
    entry.shape.push_back(static_cast<int64_t>(size));
  }
  const std::vector<uint64_t> offsets = parse_numbers(value, "data_offsets", where);
  if (offsets.size() != 2 || offsets[0] > offsets[1]) {
    throw FormatError(concat(where, ": data_offsets are not [begin, end]; ", kDamagedAdvice));
  }
  entry.begin = offsets[0];
  entry.end = offsets[1];
  const size_t expected = tensor_bytes(*dtype, entry.shape, where);
  if (entry.end - entry.begin != expected) {
    throw FormatError(concat(where, ": data_offsets give ", entry.end - entry.begin, " bytes, ", dtype_text,
                             " ", shape_string(entry.shape), " has ", expected, "; ", kDamagedAdvice));
  }
  return entry;
}

// The tensors must follow each other without overlap or gap and end with the file.
void check_layout(std::vector<Entry>& entries, uint64_t data_bytes, const std::string& where) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  uint64_t at = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != at) {
      throw FormatError(concat(where, ": tensor '", entry.name, "' begins at byte ", entry.begin,
                               entry.begin < at ? ", inside the tensor before it, which ends at "
                                                : ", after a gap: the tensor before it ends at ",
                               at, "; ", kDamagedAdvice));
    }
    at = entry.end;
  }
  if (at > data_bytes) {
    throw FormatError(concat(where, ": is truncated: its tensors have ", at, " bytes, ", data_bytes,
                             " are there; copy or download it again"));
  }
  if (at < data_bytes) {
    throw FormatError(
        concat(where, ": has ", data_bytes - at, " bytes after its last tensor; ", kDamagedAdvice));
  }
}

}  // namespace

SafetensorsFile read_safetensors(const std::filesystem::path& path) {
  SafetensorsFile file{MappedFile::open(path), {}, {}};
  const std::string where = path.string();
  const std::string_view text = header_text(*file.mapping, where);
  const json header = parse_header(text, where);
  std::vector<Entry> entries;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      file.metadata = parse_metadata(value, where);
    } else {
      entries.push_back(parse_entry(name, value, concat(where, ": tensor '", name, "'")));
    }
  }
  const size_t data_start = kLengthBytes + text.size();
  check_layout(entries, file.mapping->size() - data_start, where);
  for (Entry& entry : entries) {
    file.tensors[entry.name] =
        TensorView{entry.dtype, std::move(entry.shape), file.mapping->data() + data_start + entry.begin,
                   entry.end - entry.begin};
  }
  return file;
}

}  // namespace trainer
