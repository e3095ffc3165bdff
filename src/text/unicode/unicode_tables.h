// Differences between the character tables of the `tokenizers` library and those of PCRE2 and utf8proc.
#pragma once

#include <span>
#include <string_view>

namespace trainer {

struct CodePointRange {
  char32_t first, last;
};
struct AddedRange {
  char32_t first, last;
  std::string_view category;  // "Lo"
};

// Characters newer than Unicode 14, with their general category, by code point.
std::span<const AddedRange> added_to_categories();
// Those of them, and newer ones, that the library's step Digits treats as numbers.
std::span<const CodePointRange> new_numbers();
// Characters that the library's normal forms do not change and do not combine with their neighbours. Its
// tables are older than these characters.
std::span<const CodePointRange> not_normalized();

}  // namespace trainer
