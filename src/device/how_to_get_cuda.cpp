#include "device/how_to_get_cuda.h"

#include <torch/version.h>

#include "trainer/base/strings.h"

namespace trainer {

std::string how_to_get_cuda(const std::filesystem::path& torch, bool has_setup) {
  if (has_setup) return "scripts/setup --full installs one that has it";
  const std::string version = concat(TORCH_VERSION_MAJOR, ".", TORCH_VERSION_MINOR);
  const std::filesystem::path packages = torch.parent_path();
  if (packages.filename().string().ends_with("-packages")) {
    // ENV/lib/python3.11/site-packages. --force-reinstall because the torch without CUDA has the right
    // version.
    const std::filesystem::path python = packages.parent_path().parent_path().parent_path() / "bin/python3";
    return concat("run: ", python.string(), " -m pip install --force-reinstall 'torch==", version, ".*'");
  }
  return concat("set TORCH_DIR to the folder of a LibTorch ", version, " that has it");
}

}  // namespace trainer
