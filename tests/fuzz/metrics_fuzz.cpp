// metrics.jsonl and status.json of a run: the page and the status are made, whatever they say. The first byte
// says which file it is.
#include <cmath>
#include <cstdlib>
#include <string>

#include "formats/run_status.h"
#include "fuzz/fuzz.h"
#include "report/report.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trainer;
  if (size == 0) return 0;
  const bool is_status = data[0] % 4 == 0;
  fuzz::put("metrics.jsonl", is_status ? "" : fuzz::text_of(data + 1, size - 1));
  fuzz::put("status.json", is_status ? fuzz::text_of(data + 1, size - 1) : "");
  const RunStatus status = read_run_status(fuzz::scratch(), 1e9);
  constexpr double kMost = 1e15;
  if (std::abs(static_cast<double>(status.step)) > kMost || std::abs(status.memory_peak.value_or(0)) > kMost)
    std::abort();
  fuzz::accept_errors(fuzz::text_of(data, size), [] {
    const std::string page = read_run(fuzz::scratch(), ReportedState::unknown).dump();
    if (page.empty()) std::abort();
  });
  return 0;
}
