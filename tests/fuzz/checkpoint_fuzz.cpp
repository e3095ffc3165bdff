// The files of a checkpoint, one at a time: the first byte says which.
#include <algorithm>
#include <string>

#include "trainer/formats/checkpoint.h"
#include "trainer/formats/run_position.h"

#include "base/checksum.h"
#include "formats/optimizer_state.h"
#include "formats/trainer_state.h"
#include "fuzz/fuzz.h"

namespace {

// With the right checksum of its own: a wrong one would stop nearly all that a fuzzer tries.
std::string with_checksum(std::string manifest) {
  const size_t at = manifest.find(": \"");
  if (at == std::string::npos || manifest.size() < at + 19) return manifest;
  manifest.replace(at + 3, 16, 16, '0');
  return manifest.replace(at + 3, 16, trainer::checksum(manifest));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trainer;
  if (size == 0) return 0;
  const std::string text(fuzz::text_of(data + 1, size - 1));
  const std::filesystem::path directory = fuzz::scratch() / "checkpoint-5";
  std::filesystem::create_directory(directory);
  fuzz::accept_errors(text, [&] {
    switch (data[0] % 4) {
      case 0:
        fuzz::put(directory / kManifestFile, with_checksum(text));
        fuzz::put(directory / "a", "abc");
        newest_complete_checkpoint(fuzz::scratch(), {}, [](const std::string&) {});
        read_checkpoint(directory);
        break;
      case 1:
        fuzz::put(directory / kTrainerStateFile, text);
        write_trainer_state(directory, read_trainer_state(directory));
        break;
      case 2:
        fuzz::put(directory / kPositionFile, text);
        write_position(directory, read_position(directory));
        break;
      default:
        fuzz::put(directory / kOptimizerFile, text);
        read_optimizer_state(directory);
    }
  });
  return 0;
}
