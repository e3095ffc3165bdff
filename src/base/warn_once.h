// Warnings about files that a run reads more than once.
#pragma once

#include <string>

namespace trainer {

// Logs the warning unless this process has logged the same text before. Safe to call from several threads.
void warn_once(const std::string& text);

}  // namespace trainer
