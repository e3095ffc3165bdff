#include "base/ending.h"

#include <filesystem>
#include <new>
#include <system_error>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/foreign_errors.h"

namespace trainer {
namespace {

// Returns the family of errors whose throwers know no closer one.
std::optional<ErrorCode> general_family(ExitCode code) {
  switch (code) {
    case ExitCode::usage:
      return ErrorCode::usage;
    case ExitCode::data:
      return ErrorCode::data;
    case ExitCode::files:
      return ErrorCode::files;
    case ExitCode::out_of_memory:
      return ErrorCode::out_of_memory;
    case ExitCode::no_device:
      return ErrorCode::no_device;
    case ExitCode::numbers:
      return ErrorCode::nan_steps;
    case ExitCode::device_fault:
      return ErrorCode::device_fault;
    case ExitCode::done:
    case ExitCode::interrupted:
      break;
  }
  return std::nullopt;
}

Ending internal_error(const std::exception& error) {
  return {
      kUnexpectedError,
      concat("internal error (", own_words(error), "); please report it, with what --verbose says about it"),
      ErrorCode::internal_error, their_words(error)};
}

}  // namespace

std::string Ending::full_text() const {
  if (!family || message.empty()) return message;
  return concat(message, "\nHelp: trainer help ", name_of(*family));
}

Ending ending_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return {static_cast<int>(error.code()), error.what(),
            error.family() ? error.family() : general_family(error.code())};
  } catch (const std::bad_alloc&) {
    return {static_cast<int>(ExitCode::out_of_memory), kOutOfHostMemory, ErrorCode::oom_host};
  } catch (const std::filesystem::filesystem_error& error) {
    const std::string path = error.path1().string();
    return {static_cast<int>(ExitCode::files),
            concat(path, path.empty() ? "" : ": ", error.code().message(),
                   "; is it a link that leads nowhere, or not readable?"),
            ErrorCode::files};
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::resource_unavailable_try_again) {
      return {kUnexpectedError,
              "the system gives no more threads (see ulimit -u, or pids.max of a container); make "
              "training.num_workers and training.num_threads smaller, or raise the limit",
              ErrorCode::no_threads};
    }
    return internal_error(error);
  } catch (const std::exception& error) {
    return internal_error(error);
  } catch (...) {
    return {kUnexpectedError, "internal error (an exception of an unknown type); please report it",
            ErrorCode::internal_error};
  }
}

}  // namespace trainer
