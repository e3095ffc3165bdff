#include "text/normalizer.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utf8proc.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

namespace trainer {

bool may_change_under_nfc(std::string_view text) {
  // Nothing below U+0300 changes; from there on the lead byte is at least 0xcc.
  return std::ranges::any_of(text, [](char byte) { return static_cast<unsigned char>(byte) >= 0xcc; });
}

std::string nfc(std::string_view text) {
  utf8proc_uint8_t* result = nullptr;
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                 static_cast<utf8proc_ssize_t>(text.size()), &result,
                                 static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(result, std::free);
  if (size < 0) throw DataError(concat("text cannot be normalized (NFC): ", utf8proc_errmsg(size)));
  return {reinterpret_cast<const char*>(result), static_cast<size_t>(size)};
}

}  // namespace trainer
