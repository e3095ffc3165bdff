// Shortens error texts.
#pragma once

#include <string>

namespace trainer {

// Returns the first line of an error's text: the message without LibTorch's backtrace.
inline std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace trainer
