// Unicode normal forms.
#pragma once

#include <string>
#include <string_view>

namespace trainer {

// Normalization form C (Unicode 15). `text` must be valid UTF-8. The `tokenizers` library has older tables:
// ids differ where two combining marks meet of which one was encoded after about 2017.
std::string nfc(std::string_view text);
// False when `text` is surely in normalization form C already, which is quick to see for most text.
bool may_change_under_nfc(std::string_view text);

}  // namespace trainer
