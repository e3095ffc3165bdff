// A library that may be missing, and its functions by name.
#pragma once

#include <dlfcn.h>

namespace trainer {

class DynamicLibrary {
 public:
  explicit DynamicLibrary(const char* name) : handle_(dlopen(name, RTLD_LAZY | RTLD_LOCAL)) {}

  bool is_open() const { return handle_ != nullptr; }

  // Calls a function of type int(Arguments...), which returns 0 on success; `missing` if it does not exist.
  template <class... Arguments>
  int call(int missing, const char* name, Arguments... arguments) const {
    auto* function =
        handle_ == nullptr ? nullptr : reinterpret_cast<int (*)(Arguments...)>(dlsym(handle_, name));
    return function == nullptr ? missing : function(arguments...);
  }

 private:
  void* handle_;  // never closed: both of NVIDIA's libraries have threads of their own
};

}  // namespace trainer
