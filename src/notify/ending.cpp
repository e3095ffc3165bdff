#include "notify/ending.h"

#include <new>

#include "trainer/base/first_line.h"
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

std::string Ending::code_text() const { return concat("exit code ", code, in_words(code)); }

Ending ending_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return {static_cast<int>(error.code()), error.what()};
  } catch (const std::bad_alloc&) {
    return {static_cast<int>(ExitCode::out_of_memory), "out of memory on the host"};
  } catch (const std::exception& error) {
    return {1, first_line(error.what())};
  } catch (...) {
    return {1, "an exception of an unknown type"};
  }
}

}  // namespace trainer
