// A library that may be missing, and its functions by name.
#pragma once

#include <dlfcn.h>

namespace trainer {

class DynamicLibrary {
 public:
  DynamicLibrary() = default;
  explicit DynamicLibrary(const char* name) : handle_(dlopen(name, RTLD_LAZY | RTLD_LOCAL)) {}

  bool is_open() const { return handle_ != nullptr; }

  // Returns the function of this name, nullptr if it does not exist.
  template <class Function>
  Function* find(const char* name) const {
    return handle_ == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(handle_, name));
  }

  // Calls a function of type int(Arguments...), which returns 0 on success; `missing` if it does not exist.
  template <class... Arguments>
  int call(int missing, const char* name, Arguments... arguments) const {
    auto* function = find<int(Arguments...)>(name);
    return function == nullptr ? missing : function(arguments...);
  }

 private:
  void* handle_ = nullptr;  // never closed: NVIDIA's libraries have threads of their own
};

}  // namespace trainer
