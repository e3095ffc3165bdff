// A libnvrtc.so.13 for tests. Like NVIDIA's, it opens its builtins by their bare name when it compiles.
// Theirs are of a version that no CUDA toolkit on the machine has.
#include <dlfcn.h>

extern "C" int nvrtcCompileProgram(void*, int, const char**) {
  constexpr int kBuiltinOperationFailure = 7;
  return dlopen("libnvrtc-builtins.so.0.0", RTLD_NOW) != nullptr ? 0 : kBuiltinOperationFailure;
}
