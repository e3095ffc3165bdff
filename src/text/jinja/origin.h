// Where a character of a rendered conversation comes from: which message, and which part of it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trainer::jinja {

class Origin {
 public:
  enum class Part : uint32_t {
    written,  // by the template, in the turn of a message
    role,     // the message's role
    said,     // any other string of the message
  };

  Origin() = default;  // unknown: a literal of the template
  Origin(size_t message, Part part)
      : bits_(static_cast<uint32_t>(message + 1) << 3 | static_cast<uint32_t>(part) << 1) {}

  bool is_known() const { return bits_ != 0; }
  bool has_message() const { return bits_ >> 3 != 0; }
  size_t message() const { return (bits_ >> 3) - 1; }  // only if has_message()
  Part part() const { return static_cast<Part>(bits_ >> 1 & 3); }
  bool is_generated() const { return (bits_ & 1) != 0; }
  Origin in_generation() const {
    Origin out = *this;
    out.bits_ |= 1;
    return out;
  }
  bool operator==(const Origin&) const = default;

 private:
  uint32_t bits_ = 0;
};

}  // namespace trainer::jinja
