#include "run/translate_torch_errors.h"

#include <exception>
#include <string>
#include <string_view>

#include <c10/util/Exception.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/memory/oom.h"

namespace trainer {

// oneDNN's words when there is no memory for the code of a kernel; its other errors say more. It keeps what
// it could not complete, and calling it again ends in a segmentation fault: no smaller micro-batch is tried.
static bool is_lack_of_kernel_memory(const std::exception& error) {
  return std::string_view(error.what()) == "could not create a primitive";
}

void translate_torch_errors(const std::string& memory_advice, const std::function<void()>& command) {
  std::optional<OutOfMemory> oom;
  try {
    oom = catch_oom(command);
  } catch (const c10::Error& e) {
    const std::string what = e.what_without_backtrace();
    if (is_device_fault(e))
      throw DeviceFault(concat("the GPU reported an error and cannot be used further: ", what));
    throw std::runtime_error(what);
  } catch (const std::exception& error) {
    if (!is_lack_of_kernel_memory(error)) throw;
    throw of_family(
        ErrorCode::oom_host,
        OutOfMemoryError(concat(
            "out of memory on the host: none was left for the code of a matrix product (ulimit -v or -d, a "
            "container's limit)\n",
            memory_advice)));
  }
  if (oom) throw OutOfMemoryError(concat(oom->message, "\n", memory_advice));
}

}  // namespace trainer
