#include "device/nvrtc.h"

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <vector>

#include <ATen/Context.h>

#include "trainer/base/strings.h"

#include "base/dynamic_library.h"
#include "device/kernels.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

// Declarations from nvrtc.h, which need not be installed.
constexpr int kNoNvrtcFunction = -1;
using Program = void*;

// Looks next to the torch wheel, then in the folder of a LibTorch archive, then in the system.
std::vector<std::string> places() {
  std::vector<std::string> out;
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&at::globalContext), &info) != 0) {
    const auto lib = fs::path(info.dli_fname).parent_path();
    const auto packages = lib.parent_path().parent_path() / "nvidia";
    out = {packages / "cu13/lib/libnvrtc.so.13", packages / "cuda_nvrtc/lib/libnvrtc.so.12",
           lib / "libnvrtc.so.13", lib / "libnvrtc.so.12"};
  }
  out.insert(out.end(), {"libnvrtc.so.13", "libnvrtc.so.12"});
  return out;
}

const DynamicLibrary& nvrtc_library() {
  static const DynamicLibrary opened = open_nvrtc(places());
  return opened;
}

template <class... Arguments>
int nvrtc_call(const char* name, Arguments... arguments) {
  return nvrtc_library().call(kNoNvrtcFunction, name, arguments...);
}

std::string text_of(Program program, const char* size_function, const char* function) {
  size_t size = 0;
  if (nvrtc_call(size_function, program, &size) != 0) return "";
  std::string text(size, '\0');
  return nvrtc_call(function, program, text.data()) == 0 ? text : "";
}

// The newest architecture that the compiler knows and the GPU runs, for example 90; 0: none.
int architecture_for(int wanted) {
  int count = 0;
  if (nvrtc_call("nvrtcGetNumSupportedArchs", &count) != 0) return 0;
  std::vector<int> known(static_cast<size_t>(count));
  if (nvrtc_call("nvrtcGetSupportedArchs", known.data()) != 0) return 0;
  int best = 0;
  for (const int one : known) {
    if (one <= wanted) best = std::max(best, one);
  }
  return best;
}

CompiledKernels compile(Program program, const KernelFile& file, const std::string& definitions,
                        ComputeCapability gpu) {
  const int wanted = gpu.major * 10 + gpu.minor, architecture = architecture_for(wanted);
  if (architecture == 0)
    return {"", concat("NVRTC has no code for compute capability ", gpu.major, ".", gpu.minor)};
  const bool exact = architecture == wanted;
  std::vector<std::string> options{concat("--gpu-architecture=", exact ? "sm_" : "compute_", architecture),
                                   "--std=c++17"};
  std::istringstream words(definitions);
  for (std::string word; words >> word;) options.push_back("-D" + word);
  std::vector<const char*> pointers;
  for (const std::string& option : options) pointers.push_back(option.c_str());
  if (nvrtc_call("nvrtcCompileProgram", program, static_cast<int>(pointers.size()), pointers.data()) != 0) {
    const std::string log = text_of(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog");
    return {"", concat(file.name, " (", definitions, ") does not compile: ", log.c_str())};
  }
  std::string image = exact ? text_of(program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN")
                            : text_of(program, "nvrtcGetPTXSize", "nvrtcGetPTX");
  if (image.empty()) return {"", concat(file.name, ": NVRTC gives no code")};
  return {std::move(image), ""};
}

CompiledKernels compile_file(const KernelFile& file, const std::string& definitions, ComputeCapability gpu) {
  std::vector<const char*> names, texts;
  for (const KernelFile& header : kernel_headers()) {
    names.push_back(header.name);
    texts.push_back(header.text);
  }
  Program program = nullptr;
  const int failed = nvrtc_call("nvrtcCreateProgram", &program, file.text, file.name,
                                static_cast<int>(names.size()), texts.data(), names.data());
  if (failed != 0) return {"", concat("NVRTC does not start: error ", failed)};
  CompiledKernels out = compile(program, file, definitions, gpu);
  nvrtc_call("nvrtcDestroyProgram", &program);
  return out;
}

// Compiles a small kernel, because only that shows whether the installation is complete.
std::string try_nvrtc() {
  if (!has_nvrtc()) return "there is no libnvrtc.so.13 or .12";
  const KernelFile trial{"trial.cu", "extern \"C\" __global__ void trial(float* x) { *x = __expf(*x); }"};
  return compile_file(trial, "", {8, 0}).problem;
}

}  // namespace

// The loader knows a library that is open by its bare name, wherever it lies. NVIDIA's packages give libnvrtc
// no path to its builtins, and it opens them by that name when it first compiles.
DynamicLibrary open_nvrtc(const std::vector<std::string>& places) {
  DynamicLibrary opened;
  for (const std::string& place : places) {
    opened = DynamicLibrary(place.c_str());
    if (!opened.is_open()) continue;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(fs::path(place).parent_path(), none)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("libnvrtc-builtins.so.")) DynamicLibrary(entry.path().c_str());
    }
    break;
  }
  return opened;
}

bool has_nvrtc() { return nvrtc_library().is_open(); }

const std::string& why_no_nvrtc() {
  static const std::string why = try_nvrtc();
  return why;
}

CompiledKernels compile_kernels(const KernelFile& file, const std::string& definitions,
                                ComputeCapability gpu) {
  if (!why_no_nvrtc().empty()) return {"", why_no_nvrtc()};
  return compile_file(file, definitions, gpu);
}

}  // namespace trainer
