#include "run/memory_watch.h"

#include "trainer/base/log.h"
#include "trainer/base/strings.h"

namespace trainer {

void MemoryWatch::add(const RunPosition& position, const MemorySummary& memory, OutputDirectory& output) {
  if (const auto growth = tensors_.add(position.step, memory.allocated))
    tell(position, "tensors", *growth, memory.limit, output);
  const int64_t outside = memory.device.is_cpu() ? memory.resident - memory.reserved : memory.resident;
  if (const auto growth = process_.add(position.step, outside)) tell(position, "process", *growth, 0, output);
}

void MemoryWatch::tell(const RunPosition& position, const char* what, const Growth& growth, int64_t limit,
                       OutputDirectory& output) {
  std::string text = concat("memory of the ", what, " grows by ", bytes_string(growth.bytes_per_step),
                            " a step: ", bytes_string(growth.from), " after step ", growth.first_step, ", ",
                            bytes_string(growth.to), " after step ", growth.last_step);
  if (limit > growth.to)
    text += concat("; at this rate it runs out in ", grouped((limit - growth.to) / growth.bytes_per_step),
                   " steps");
  log::warning(text + ". This is a bug: please report it with metrics.jsonl");
  output.write({"memory_growth",
                {{"step", position.step},
                 {"what", what},
                 {"bytes_per_step", growth.bytes_per_step},
                 {"first_step", growth.first_step},
                 {"last_step", growth.last_step},
                 {"from", growth.from},
                 {"to", growth.to}}});
}

}  // namespace trainer
