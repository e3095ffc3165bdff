#include "run/computes_with.h"

#include <cstdlib>

#include <ATen/Version.h>

#include "trainer/base/strings.h"

#include "base/switches.h"
#include "base/text.h"
#include "ops/cpu_products.h"

namespace trainer {
namespace {

// Of the libraries, and one of this program.
constexpr const char* kVariables[] = {"ATEN_CPU_CAPABILITY",
                                      "CUBLAS_WORKSPACE_CONFIG",
                                      "DNNL_DEFAULT_FPMATH_MODE",
                                      "DNNL_MAX_CPU_ISA",
                                      "MKL_CBWR",
                                      "MKL_ENABLE_INSTRUCTIONS",
                                      "NVIDIA_TF32_OVERRIDE",
                                      "ONEDNN_DEFAULT_FPMATH_MODE",
                                      "ONEDNN_MAX_CPU_ISA",
                                      "TRAINER_BF16_SUMS",
                                      "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"};

// The value behind `name` in LibTorch's description of itself, up to the next comma.
std::string told_by_libtorch(const std::string& told, const std::string& name) {
  const size_t found = told.find(name);
  if (found == std::string::npos) return "unknown";
  const size_t begin = found + name.size();
  return told.substr(begin, told.find_first_of(",\n", begin) - begin);
}

}  // namespace

std::map<std::string, std::string> computes_with(c10::Device device) {
  const std::string told = at::show_config();
  std::map<std::string, std::string> all{{"library LibTorch", told_by_libtorch(told, "TORCH_VERSION=")},
                                         {"library MKL", first_line(at::get_mkl_version())},
                                         {"library oneDNN", first_line(at::get_mkldnn_version())}};
  for (const char* name : kVariables) {
    const char* value = std::getenv(name);
    all[concat("environment ", name)] = value == nullptr ? "none" : value;
  }
  // Earlier checkpoints do not have them: they were not there, as in most runs.
  for (const SwitchValues& one : all_switches()) {
    if (const char* value = std::getenv(one.name)) all[concat("environment ", one.name)] = value;
  }
  if (device.is_cuda()) {
    all["library CUDA"] = told_by_libtorch(told, "CUDA Runtime ");
    all["library cuDNN"] = told_by_libtorch(told, "CuDNN ");
  } else {
    all[kProcessor] = concat(at::get_cpu_capability(), ", ", describe_cpu_products());
  }
  return all;
}

}  // namespace trainer
