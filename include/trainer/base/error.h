// The errors of the program. Each says what is wrong, where (file, line, key, tensor, shape) and what to do,
// and carries the exit code that the process ends with (docs/errors.md).
#pragma once

#include <concepts>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "trainer/base/error_code.h"

namespace trainer {

enum class ExitCode : int {
  done = 0,
  usage = 2,  // command line or configuration
  data = 3,   // training or evaluation data
  files = 4,  // model, tokenizer, adapter or checkpoint files; the output directory
  out_of_memory = 5,
  no_device = 6,
  numbers = 7,  // NaN or Inf
  device_fault = 8,
  interrupted = 75,  // stopped by a signal and saved: the same command resumes
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }
  // The family that it belongs to, if a closer one is known than its exit code says.
  const std::optional<ErrorCode>& family() const { return family_; }
  // Has no effect on an error that has a family: who throws knows best.
  void set_family(ErrorCode family) {
    if (!family_) family_ = family;
  }

 private:
  ExitCode code_;
  std::optional<ErrorCode> family_;
};

// Returns the error with its family: throw of_family(ErrorCode::disk_full, FormatError(...)).
template <std::derived_from<Error> AnyError>
AnyError of_family(ErrorCode family, AnyError error) {
  error.set_family(family);
  return error;
}

// Does the work. Its errors get this family, unless they have one.
template <class Work>
decltype(auto) in_family(ErrorCode family, Work&& work) {
  try {
    return std::forward<Work>(work)();
  } catch (Error& error) {
    error.set_family(family);
    throw;
  }
}

struct ConfigError : Error {
  // Has another exit code when the only problem is that named files are missing.
  explicit ConfigError(const std::string& message, ExitCode code = ExitCode::usage) : Error(code, message) {}
};
struct DataError : Error {
  explicit DataError(const std::string& message) : Error(ExitCode::data, message) {}
};
struct FormatError : Error {
  explicit FormatError(const std::string& message) : Error(ExitCode::files, message) {}
};
struct OutOfMemoryError : Error {
  explicit OutOfMemoryError(const std::string& message) : Error(ExitCode::out_of_memory, message) {}
};
struct DeviceError : Error {
  explicit DeviceError(const std::string& message) : Error(ExitCode::no_device, message) {}
};
struct NumericsError : Error {
  explicit NumericsError(const std::string& message) : Error(ExitCode::numbers, message) {}
};
// The device reported an error after which this process cannot use it any more.
struct DeviceFault : Error {
  explicit DeviceFault(const std::string& message) : Error(ExitCode::device_fault, message) {}
};

}  // namespace trainer
