// Writes fields of protocol buffers. https://protobuf.dev/programming-guides/encoding
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace trainer {

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

}  // namespace trainer
