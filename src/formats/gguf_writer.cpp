#include <bit>
#include <set>
#include <type_traits>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/gguf.h"
#include "trainer/formats/safetensors.h"

#include "base/progress.h"
#include "formats/gguf_names.h"
#include "formats/q8_0.h"

namespace trainer {

using gguf::aligned;
using gguf::ValueType;

std::string gguf_type_name(GgufType type) {
  switch (type) {
    case GgufType::f32:
      return "F32";
    case GgufType::f16:
      return "F16";
    case GgufType::q8_0:
      return "Q8_0";
    case GgufType::bf16:
      return "BF16";
  }
  throw std::logic_error("a GgufType that is not known");
}

size_t gguf_bytes(GgufType type, const std::vector<int64_t>& shape, const std::string& where) {
  if (type == GgufType::f32) return tensor_bytes(Dtype::f32, shape, where);
  if (type != GgufType::q8_0) return tensor_bytes(Dtype::f16, shape, where);
  if (shape.empty() || shape.back() % kQ8BlockValues != 0) {
    throw FormatError(
        concat(where, ": rows of ", shape_string(shape), " are not a multiple of 32, as Q8_0 needs"));
  }
  return tensor_bytes(Dtype::u8, shape, where) / kQ8BlockValues * kQ8BlockBytes;
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

}  // namespace trainer
