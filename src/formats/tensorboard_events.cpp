// TensorBoard's event files, in the encoding of protocol buffers.
#include "formats/tensorboard_events.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace trainer {
namespace {

// Writes fields. https://protobuf.dev/programming-guides/encoding
class ProtocolBuffer {
 public:
  ProtocolBuffer& integer(int field, int64_t value) {
    varint(static_cast<uint64_t>(field) << 3);
    varint(static_cast<uint64_t>(value));
    return *this;
  }
  ProtocolBuffer& real64(int field, double value) {
    varint(static_cast<uint64_t>(field) << 3 | 1);
    little_endian(std::bit_cast<uint64_t>(value), 8);
    return *this;
  }
  ProtocolBuffer& real32(int field, float value) {
    varint(static_cast<uint64_t>(field) << 3 | 5);
    little_endian(std::bit_cast<uint32_t>(value), 4);
    return *this;
  }
  // A string, or the bytes of a message.
  ProtocolBuffer& bytes(int field, std::string_view value) {
    varint(static_cast<uint64_t>(field) << 3 | 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  ProtocolBuffer& message(int field, const ProtocolBuffer& value) { return bytes(field, value.bytes_); }

  const std::string& text() const { return bytes_; }

 private:
  void varint(uint64_t value) {
    for (; value >= 128; value >>= 7) bytes_ += static_cast<char>(value | 128);
    bytes_ += static_cast<char>(value);
  }
  void little_endian(uint64_t value, int size) {
    for (int i = 0; i < size; i++) bytes_ += static_cast<char>(value >> (8 * i));
  }

  std::string bytes_;
};

// CRC-32C (Castagnoli), least significant bit first.
constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < table.size(); i++) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
    table[i] = crc;
  }
  return table;
}

uint32_t masked_crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> table = crc_table();
  uint32_t crc = ~0u;
  for (const char byte : bytes) crc = crc >> 8 ^ table[(crc ^ static_cast<unsigned char>(byte)) & 255];
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

template <class Number>
std::string little_endian(Number value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof value; i++) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

template <class Number>
Number read_little_endian(std::string_view bytes) {
  Number value = 0;
  for (size_t i = 0; i < sizeof value; i++)
    value |= static_cast<Number>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  return value;
}

std::string framed(const std::string& event) {
  const std::string size = little_endian(static_cast<uint64_t>(event.size()));
  return size + little_endian(masked_crc32c(size)) + event + little_endian(masked_crc32c(event));
}

// SummaryMetadata of a plugin's tensors.
ProtocolBuffer plugin(const std::string& name, std::string_view content, bool is_tensor) {
  ProtocolBuffer data, metadata;
  data.bytes(1, name);
  if (!content.empty()) data.bytes(2, content);
  metadata.message(1, data);
  if (is_tensor) metadata.integer(4, 2);  // DATA_CLASS_TENSOR
  return metadata;
}

// Strings of a protocol buffer must be UTF-8.
std::string valid_utf8(const std::string& text) {
  const auto replace = nlohmann::json::error_handler_t::replace;
  return nlohmann::json::parse(nlohmann::json(text).dump(-1, ' ', false, replace)).get<std::string>();
}

// google.protobuf.Value
ProtocolBuffer value_of(const nlohmann::ordered_json& value) {
  ProtocolBuffer out;
  if (value.is_boolean()) return out.integer(4, value.get<bool>());
  if (value.is_number()) return out.real64(2, value.get<double>());
  return out.bytes(3, valid_utf8(value.is_string() ? value.get<std::string>() : value.dump()));
}

// Reads a varint and removes it; nothing if the bytes end before.
std::optional<uint64_t> take_varint(std::string_view& bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size() && i < 10; i++) {
    const auto byte = static_cast<unsigned char>(bytes[i]);
    value |= static_cast<uint64_t>(byte & 127) << (7 * i);
    if (byte < 128) {
      bytes.remove_prefix(i + 1);
      return value;
    }
  }
  return std::nullopt;
}

// Returns Event.step; 0 if the event has none.
int64_t step_of(std::string_view event) {
  while (const auto tag = take_varint(event)) {
    const auto field = *tag >> 3, kind = *tag & 7;
    size_t skipped = kind == 1 ? 8 : kind == 5 ? 4 : 0;
    if (kind == 0 || kind == 2) {
      const auto value = take_varint(event);
      if (!value) return 0;
      if (kind == 0 && field == 2) return static_cast<int64_t>(*value);
      if (kind == 2) skipped = *value;
    }
    if (skipped > event.size()) return 0;
    event.remove_prefix(skipped);
  }
  return 0;
}

}  // namespace

void TensorboardEvent::add_scalar(const std::string& tag, double value) {
  ProtocolBuffer summary_value;
  summary_value.bytes(1, tag).real32(2, static_cast<float>(value));
  values_ += ProtocolBuffer().message(1, summary_value).text();
}

void TensorboardEvent::add_text(const std::string& tag, const std::string& text) {
  ProtocolBuffer shape, tensor, value;
  shape.message(2, ProtocolBuffer().integer(1, 1));                   // one string
  tensor.integer(1, 7).message(2, shape).bytes(8, valid_utf8(text));  // DT_STRING
  value.bytes(1, tag).message(8, tensor).message(9, plugin("text", "", /*is_tensor=*/true));
  values_ += ProtocolBuffer().message(1, value).text();
}

void TensorboardEvent::add_hparams(const nlohmann::ordered_json& values) {
  ProtocolBuffer start, data, value, tensor;
  for (const auto& [name, hparam] : values.items()) {
    ProtocolBuffer entry;
    entry.bytes(1, name).message(2, value_of(hparam));
    start.message(1, entry);
  }
  start.real64(5, wall_time_);
  data.integer(1, 0).message(3, start);  // HParamsPluginData.session_start_info
  ProtocolBuffer shape;
  shape.message(2, ProtocolBuffer().integer(1, 0));
  tensor.integer(1, 1).message(2, shape);  // an empty DT_FLOAT
  value.bytes(1, "_hparams_/session_start_info").message(8, tensor);
  value.message(9, plugin("hparams", data.text(), /*is_tensor=*/false));
  values_ += ProtocolBuffer().message(1, value).text();
}

std::string TensorboardEvent::record() const {
  return framed(ProtocolBuffer().real64(1, wall_time_).integer(2, step_).bytes(5, values_).text());
}

std::string tensorboard_version_record(double wall_time) {
  return framed(ProtocolBuffer().real64(1, wall_time).bytes(3, "brain.Event:2").text());
}

std::string tensorboard_start_record(double wall_time, int64_t step) {
  ProtocolBuffer log;
  log.integer(1, 1);  // START
  return framed(ProtocolBuffer().real64(1, wall_time).integer(2, step).message(7, log).text());
}

int64_t bytes_up_to_step(std::string_view file, int64_t last_step) {
  constexpr size_t kHead = 12, kTail = 4;
  size_t kept = 0;
  while (file.size() - kept >= kHead + kTail) {
    const std::string_view rest = file.substr(kept);
    const auto size = read_little_endian<uint64_t>(rest);
    if (read_little_endian<uint32_t>(rest.substr(8)) != masked_crc32c(rest.substr(0, 8))) break;
    if (size > rest.size() - kHead - kTail) break;
    const std::string_view event = rest.substr(kHead, size);
    if (read_little_endian<uint32_t>(rest.substr(kHead + size)) != masked_crc32c(event)) break;
    if (step_of(event) > last_step) break;
    kept += kHead + size + kTail;
  }
  return static_cast<int64_t>(kept);
}

}  // namespace trainer
