// The safetensors reader: what it accepts lies inside the file.
#include "trainer/formats/safetensors.h"

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trainer;
  const auto path = fuzz::put("a.safetensors", fuzz::text_of(data, size));
  fuzz::accept_errors(fuzz::text_of(data, size), [&] {
    const SafetensorsFile file = read_safetensors(path);
    volatile unsigned sum = 0;
    for (const auto& [name, view] : file.tensors) {
      for (size_t at = 0; at < view.nbytes; at++) sum = sum + std::to_integer<unsigned>(view.data[at]);
    }
  });
  return 0;
}
