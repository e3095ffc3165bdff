#include "notify/ending_text.h"

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

namespace trainer {
namespace {

const char* in_words(int code) {
  switch (static_cast<ExitCode>(code)) {
    case ExitCode::usage:
      return ", configuration";
    case ExitCode::data:
      return ", data";
    case ExitCode::files:
      return ", files";
    case ExitCode::out_of_memory:
      return ", out of memory";
    case ExitCode::no_device:
      return ", no device";
    case ExitCode::numbers:
      return ", NaN or Inf";
    case ExitCode::device_fault:
      return ", the GPU failed";
    case ExitCode::done:
    case ExitCode::interrupted:
      break;
  }
  return "";
}

}  // namespace

std::string code_text(const Ending& ending) {
  return concat("exit code ", ending.code, in_words(ending.code));
}

}  // namespace trainer
