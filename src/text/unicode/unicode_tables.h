// Where the character tables of the `tokenizers` library differ from those of PCRE2 and utf8proc.
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
// Those of them (and newer ones) that its Digits takes for numbers.
std::span<const CodePointRange> new_numbers();
// Characters that its normal forms leave unchanged, together with their neighbours: it does not know that
// they combine, are composed or can be decomposed.
std::span<const CodePointRange> not_normalized();

}  // namespace trainer
