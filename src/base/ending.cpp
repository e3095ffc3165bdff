#include "trainer/base/ending.h"

#include <filesystem>
#include <new>
#include <system_error>

#include "trainer/base/error.h"
#include "trainer/base/first_line.h"
#include "trainer/base/strings.h"

namespace trainer {

Ending ending_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return {static_cast<int>(error.code()), error.what()};
  } catch (const std::bad_alloc&) {
    return {static_cast<int>(ExitCode::out_of_memory), kOutOfHostMemory};
  } catch (const std::filesystem::filesystem_error& error) {
    const std::string path = error.path1().string();
    return {static_cast<int>(ExitCode::files), concat(path, path.empty() ? "" : ": ", error.code().message(),
                                                      "; is it a link that leads nowhere, "
                                                      "or not readable?")};
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::resource_unavailable_try_again) {
      return {kUnexpectedError,
              "the system gives no more threads (see ulimit -u, or pids.max of a container); make "
              "training.num_workers and training.num_threads smaller, or raise the limit"};
    }
    return {kUnexpectedError, concat("internal error: ", first_line(error.what()), "; please report it")};
  } catch (const std::exception& error) {
    return {kUnexpectedError, concat("internal error: ", first_line(error.what()), "; please report it")};
  } catch (...) {
    return {kUnexpectedError, "internal error: an exception of an unknown type; please report it"};
  }
}

}  // namespace trainer
