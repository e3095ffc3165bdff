// How pairs of GPUs are reported. NVIDIA's two libraries are replaced by fakes, opened with dlopen.
#include "device/gpu_links.h"

#include <cstdlib>
#include <dlfcn.h>

#include <gtest/gtest.h>

#include "support/error_message.h"

namespace trainer {
namespace {

class GpuLinks : public testing::Test {
 protected:
  ~GpuLinks() override {
    for (const char* variable : {"FAKE_PEER_ACCESS", "FAKE_NVLINK", "FAKE_DEVICE_MEMORY"})
      ::unsetenv(variable);
  }

  // A library that is loaded already is what dlopen finds by its name.
  static std::vector<GpuLink> look_at_links() {
    for (const char* library : {"libcuda.so.1", "libnvidia-ml.so.1"}) {
      if (dlopen((std::string(FAKE_NVIDIA_DIR "/") + library).c_str(), RTLD_NOW) == nullptr)
        ADD_FAILURE() << dlerror();
    }
    return measure_gpu_links(system_gpus().look().visible());
  }
};

TEST_F(GpuLinks, WithoutPeerAccessCopiesGoThroughMainMemory) {
  const std::vector<GpuLink> links = look_at_links();
  ASSERT_EQ(links.size(), 1U);
  EXPECT_EQ(links[0].first, 0);
  EXPECT_EQ(links[0].second, 1);
  EXPECT_FALSE(links[0].direct);
  EXPECT_EQ(links[0].path, "the PCIe host bridge");
  EXPECT_GT(links[0].rate, 0);
  EXPECT_TRUE(links[0].text().starts_with("cuda:0 and cuda:1: through main memory, the PCIe host bridge, "));
}

TEST_F(GpuLinks, PeerAccessIsAllowedForTheCopyAndEnded) {
  ::setenv("FAKE_PEER_ACCESS", "1", 1);
  ::setenv("FAKE_NVLINK", "1", 1);
  for (int i = 0; i < 2; i++) {  // what is not ended makes the second copy fail
    const GpuLink link = look_at_links().at(0);
    EXPECT_TRUE(link.direct);
    EXPECT_EQ(link.path, "NVLink");
    EXPECT_GT(link.rate, 0) << link.problem;
  }
}

TEST_F(GpuLinks, AFullGpuIsNotMeasured) {
  ::setenv("FAKE_DEVICE_MEMORY", "1000", 1);
  const GpuLink link = look_at_links().at(0);
  EXPECT_EQ(link.rate, 0);
  EXPECT_TRUE(test::contains(link.text(), "not measured: no 128.0 MB free on cuda:0"));
}

}  // namespace
}  // namespace trainer
