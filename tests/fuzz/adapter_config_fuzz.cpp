// adapter_config.json: an accepted file is written in a form that is accepted again.
#include <cstdlib>

#include "trainer/formats/peft.h"

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trainer;
  fuzz::put("adapter_config.json", fuzz::text_of(data, size));
  fuzz::accept_errors(fuzz::text_of(data, size), [] {
    const AdapterConfig config = read_adapter_config(fuzz::scratch());
    write_adapter_config(fuzz::scratch(), config);
    try {
      if (read_adapter_config(fuzz::scratch()).r != config.r) std::abort();
    } catch (const Error&) {
      std::abort();
    }
  });
  return 0;
}
