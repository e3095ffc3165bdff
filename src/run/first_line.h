#pragma once

#include <string>

namespace trainer {

// Of an error's text: without LibTorch's backtrace.
inline std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace trainer
