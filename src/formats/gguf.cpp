// Writes and reads GGUF files.
#include "trainer/formats/gguf.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <set>
#include <type_traits>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/safetensors.h"

#include "base/not_text.h"
#include "base/progress.h"
#include "formats/gguf_blocks.h"

namespace trainer {
namespace {

// The numbers of the value types, and other constants of the format.
namespace gguf {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint32_t kVersion = 3;
constexpr uint64_t kAlignment = 32;

enum class ValueType : uint32_t { u8 = 0, u32 = 4, i32 = 5, f32 = 6, boolean = 7, string = 8, array = 9 };

constexpr uint64_t aligned(uint64_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace gguf

}  // namespace

using gguf::aligned;
using gguf::ValueType;

std::string gguf_type_name(GgufType type) {
  switch (type) {
    case GgufType::f32:
      return "F32";
    case GgufType::f16:
      return "F16";
    case GgufType::q5_0:
      return "Q5_0";
    case GgufType::q8_0:
      return "Q8_0";
    case GgufType::q4_k:
      return "Q4_K";
    case GgufType::q6_k:
      return "Q6_K";
    case GgufType::bf16:
      return "BF16";
  }
  throw std::logic_error("a GgufType that is not known");
}

size_t gguf_bytes(GgufType type, const std::vector<int64_t>& shape, const std::string& where) {
  const auto [values, bytes] = gguf_block(type);
  if (values == 1) return tensor_bytes(bytes == 4 ? Dtype::f32 : Dtype::f16, shape, where);
  if (shape.empty() || shape.back() % values != 0) {
    throw FormatError(concat(where, ": rows of ", shape_string(shape), " are not a multiple of ", values,
                             ", as ", gguf_type_name(type), " needs"));
  }
  return tensor_bytes(Dtype::u8, shape, where) / static_cast<size_t>(values) * static_cast<size_t>(bytes);
}

namespace {

// Little-endian, like all processors that this program runs on.
static_assert(std::endian::native == std::endian::little);

class Writer {
 public:
  template <class Number>
  requires std::is_arithmetic_v<Number>
  void put(Number number) { bytes_.append(reinterpret_cast<const char*>(&number), sizeof number); }
  void put(bool flag) { bytes_.push_back(flag ? 1 : 0); }
  void put(ValueType type) { put(static_cast<uint32_t>(type)); }
  void put(const std::string& text) {
    put(static_cast<uint64_t>(text.size()));
    bytes_ += text;
  }

  template <class Value>
  void put_typed(const Value& value) {
    put(type_of(value));
    put(value);
  }
  template <class Item>
  void put_typed(const std::vector<Item>& items) {
    put(ValueType::array);
    put(type_of(Item()));
    put(static_cast<uint64_t>(items.size()));
    for (const Item& item : items) put(item);
  }

  const std::string& bytes() const { return bytes_; }
  void pad() { bytes_.resize(aligned(bytes_.size())); }

 private:
  static ValueType type_of(uint8_t) { return ValueType::u8; }
  static ValueType type_of(uint32_t) { return ValueType::u32; }
  static ValueType type_of(int32_t) { return ValueType::i32; }
  static ValueType type_of(float) { return ValueType::f32; }
  static ValueType type_of(bool) { return ValueType::boolean; }
  static ValueType type_of(const std::string&) { return ValueType::string; }

  std::string bytes_;
};

std::string where_is(const std::filesystem::path& path, const GgufSource& tensor) {
  return concat(path.string(), ": tensor '", tensor.name, "'");
}

// Returns everything before the tensors' bytes.
std::string head_of(const std::filesystem::path& path, const GgufMetadata& metadata,
                    const std::vector<GgufSource>& tensors) {
  Writer head;
  head.put(gguf::kMagic);
  head.put(gguf::kVersion);
  head.put(static_cast<uint64_t>(tensors.size()));
  head.put(static_cast<uint64_t>(metadata.size()));
  std::set<std::string> seen;
  for (const auto& [key, value] : metadata) {
    if (!seen.insert(key).second)
      throw FormatError(concat(path.string(), ": the key ", key, " occurs twice"));
    head.put(key);
    std::visit([&](const auto& typed) { head.put_typed(typed); }, value);
  }
  uint64_t offset = 0;
  seen.clear();
  for (const GgufSource& tensor : tensors) {
    if (!seen.insert(tensor.name).second) throw FormatError(concat(where_is(path, tensor), ": occurs twice"));
    head.put(tensor.name);
    head.put(static_cast<uint32_t>(tensor.shape.size()));
    for (size_t i = tensor.shape.size(); i-- > 0;) head.put(static_cast<uint64_t>(tensor.shape[i]));
    head.put(static_cast<uint32_t>(tensor.type));
    head.put(offset);
    offset += aligned(gguf_bytes(tensor.type, tensor.shape, where_is(path, tensor)));
  }
  head.pad();
  return head.bytes();
}

}  // namespace

void write_gguf(const std::filesystem::path& path, const GgufMetadata& metadata,
                const std::vector<GgufSource>& tensors) {
  const std::string head = head_of(path, metadata, tensors);
  int64_t bytes = 0;
  for (const GgufSource& tensor : tensors)
    bytes += static_cast<int64_t>(gguf_bytes(tensor.type, tensor.shape, where_is(path, tensor)));
  Progress shown("writing " + path.filename().string(), bytes, ProgressUnit::bytes);
  write_atomically(path, [&](std::ostream& out) {
    out << head;
    for (const GgufSource& tensor : tensors) {
      const std::string where = where_is(path, tensor);
      const auto expected = static_cast<std::streamoff>(gguf_bytes(tensor.type, tensor.shape, where));
      const std::streamoff before = out.tellp();
      tensor.write(out);
      shown.add(expected);
      const std::streamoff written = out.tellp() - before;
      if (written != expected)
        throw FormatError(concat(where, ": ", written, " bytes were written where it has ", expected));
      const size_t padding = aligned(static_cast<uint64_t>(expected)) - static_cast<uint64_t>(expected);
      out.write(std::string(padding, '\0').data(), static_cast<std::streamsize>(padding));
    }
  });
}

namespace {

// Reads the file piece by piece from the front, and checks each time that enough bytes are left.
class GgufReader {
 public:
  explicit GgufReader(const MappedFile& file) : rest_(file.text()), where_(file.path().string()) {}

  template <class Number>
  Number number() {
    Number number;
    std::memcpy(&number, take(sizeof number).data(), sizeof number);
    return number;
  }
  std::string string() { return std::string(take(number<uint64_t>())); }
  size_t left() const { return rest_.size(); }

  GgufValue value(const std::string& key) {
    const auto type = number<uint32_t>();
    switch (static_cast<ValueType>(type)) {
      case ValueType::u32:
        return number<uint32_t>();
      case ValueType::f32:
        return number<float>();
      case ValueType::boolean:
        return number<uint8_t>() != 0;
      case ValueType::string:
        return string();
      case ValueType::array:
        return array(key);
      default:
        fail(concat("key ", key, ": values of type ", type, " are not supported"));
    }
  }

  [[noreturn]] void fail(const std::string& what) const { throw FormatError(concat(where_, ": ", what)); }

 private:
  std::string_view take(uint64_t size) {
    if (size > rest_.size()) fail("is truncated or damaged");
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  GgufValue array(const std::string& key) {
    const auto type = number<uint32_t>();
    const auto count = number<uint64_t>();
    if (count > left()) fail("is truncated or damaged");  // an item takes at least one byte
    switch (static_cast<ValueType>(type)) {
      case ValueType::string:
        return items<std::string>(count, [&] { return string(); });
      case ValueType::i32:
        return items<int32_t>(count, [&] { return number<int32_t>(); });
      case ValueType::f32:
        return items<float>(count, [&] { return number<float>(); });
      case ValueType::boolean:
        return items<bool>(count, [&] { return number<uint8_t>() != 0; });
      case ValueType::u8:
        return items<uint8_t>(count, [&] { return number<uint8_t>(); });
      default:
        fail(concat("key ", key, ": lists of type ", type, " are not supported"));
    }
  }

  template <class Item, class Next>
  static std::vector<Item> items(uint64_t count, const Next& next) {
    std::vector<Item> list;
    for (uint64_t i = 0; i < count; i++) list.push_back(next());
    return list;
  }

  std::string_view rest_;
  std::string where_;
};

struct TensorEntry {
  std::string name;
  GgufTensor tensor;
  uint64_t offset;
};

GgufType type_named(uint32_t number, const GgufReader& reader, const std::string& name) {
  for (GgufType type : {GgufType::f32, GgufType::f16, GgufType::q5_0, GgufType::q8_0, GgufType::q4_k,
                        GgufType::q6_k, GgufType::bf16}) {
    if (static_cast<uint32_t>(type) == number) return type;
  }
  reader.fail(concat("tensor '", name, "': type ", number, " is not supported"));
}

TensorEntry read_entry(GgufReader& reader) {
  TensorEntry entry{reader.string(), {}, 0};
  const auto dimensions = reader.number<uint32_t>();
  if (dimensions > 4)
    reader.fail(concat("tensor '", entry.name, "': has ", dimensions, " dimensions; the most is 4"));
  for (uint32_t i = 0; i < dimensions; i++) {
    const auto size = reader.number<uint64_t>();
    if (size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      reader.fail(concat("tensor '", entry.name, "': the size ", size, " is too large"));
    entry.tensor.shape.insert(entry.tensor.shape.begin(), static_cast<int64_t>(size));
  }
  entry.tensor.type = type_named(reader.number<uint32_t>(), reader, entry.name);
  entry.offset = reader.number<uint64_t>();
  return entry;
}

}  // namespace

GgufFile read_gguf(const std::filesystem::path& path) {
  GgufFile file{MappedFile::open(path), {}, {}};
  GgufReader reader(*file.mapping);
  if (reader.number<uint32_t>() != gguf::kMagic) {
    const std::string what = other_kind(file.mapping->text());
    reader.fail(what.empty() ? "is not a GGUF file" : what);
  }
  if (const auto version = reader.number<uint32_t>(); version != gguf::kVersion)
    reader.fail(concat("is GGUF version ", version, "; only version 3 is supported"));
  const auto tensors = reader.number<uint64_t>(), keys = reader.number<uint64_t>();
  for (uint64_t i = 0; i < keys; i++) {
    const std::string key = reader.string();
    if (!file.metadata.emplace(key, reader.value(key)).second)
      reader.fail(concat("the key ", key, " occurs twice"));
  }
  std::vector<TensorEntry> entries;
  for (uint64_t i = 0; i < tensors; i++) entries.push_back(read_entry(reader));

  const size_t size = file.mapping->size(), start = gguf::aligned(size - reader.left());
  for (TensorEntry& entry : entries) {
    const std::string where = concat(path.string(), ": tensor '", entry.name, "'");
    entry.tensor.nbytes = gguf_bytes(entry.tensor.type, entry.tensor.shape, where);
    const bool inside = start <= size && entry.offset <= size - start &&
                        entry.tensor.nbytes <= size - start - entry.offset &&
                        entry.offset % gguf::kAlignment == 0;
    if (!inside)
      throw FormatError(concat(where, ": its bytes are not in the file; it is truncated or damaged"));
    entry.tensor.data = file.mapping->data() + start + entry.offset;
    if (!file.tensors.emplace(entry.name, entry.tensor).second)
      throw FormatError(concat(where, ": occurs twice"));
  }
  return file;
}

}  // namespace trainer
