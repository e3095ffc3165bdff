// The numbers of GGUF's value types, and other constants of its writer and reader.
#pragma once

#include <cstdint>

namespace trainer::gguf {

inline constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
inline constexpr uint32_t kVersion = 3;
inline constexpr uint64_t kAlignment = 32;

enum class ValueType : uint32_t { u32 = 4, i32 = 5, f32 = 6, boolean = 7, string = 8, array = 9 };

constexpr uint64_t aligned(uint64_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace trainer::gguf
