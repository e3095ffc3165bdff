// A libcuda.so.1 for tests: there is no GPU, and every kernel can be loaded. With it cuDNN makes plans for
// GPUs that are not here (tests/nn/cudnn_ordered_backward_test.cpp).
namespace {
int library, kernel;
constexpr int kNoDevice = 100;
}  // namespace

extern "C" {
int cuLibraryLoadData(void** loaded, const void*, void*, void*, unsigned, void*, void*, unsigned) {
  return *loaded = &library, 0;
}
int cuLibraryGetKernel(void** found, void*, const char*) { return *found = &kernel, 0; }
int cuLibraryUnload(void*) { return 0; }
int cuKernelSetAttribute(int, int, void*, int) { return 0; }
int cuGetErrorString(int, const char** text) { return *text = "no device", 0; }
int cuGetErrorName(int, const char** text) { return *text = "NO_DEVICE", 0; }

// cuDNN asks for these, and does without a GPU.
#define NO_DEVICE(function) \
  int function() { return kNoDevice; }
NO_DEVICE(cuInit)
NO_DEVICE(cuCtxGetCurrent)
NO_DEVICE(cuCtxGetLimit)
NO_DEVICE(cuCtxPopCurrent)
NO_DEVICE(cuCtxPushCurrent)
NO_DEVICE(cuDeviceGet)
NO_DEVICE(cuDeviceGetCount)
NO_DEVICE(cuDriverGetVersion)
NO_DEVICE(cuKernelGetAttribute)
NO_DEVICE(cuLaunchCooperativeKernel)
NO_DEVICE(cuLaunchKernel)
NO_DEVICE(cuLaunchKernelEx)
NO_DEVICE(cuLibraryLoadFromFile)
NO_DEVICE(cuLinkAddData)
NO_DEVICE(cuLinkComplete)
NO_DEVICE(cuLinkCreate)
NO_DEVICE(cuLinkDestroy)
NO_DEVICE(cuOccupancyMaxPotentialClusterSize)
NO_DEVICE(cuStreamGetCtx)
}
