#include <cstring>
#include <limits>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/gguf.h"

#include "formats/gguf_names.h"

namespace trainer {
namespace {

using gguf::ValueType;

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
  for (GgufType type : {GgufType::f32, GgufType::f16, GgufType::q8_0, GgufType::bf16}) {
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
  if (reader.number<uint32_t>() != gguf::kMagic) reader.fail("is not a GGUF file");
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
