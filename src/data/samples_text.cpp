#include "data/samples_text.h"

#include <algorithm>
#include <array>
#include <span>

#include "trainer/base/strings.h"

#include "base/checksum.h"
#include "data/bytes_of.h"

namespace trainer {

std::string samples_text(const Dataset& data) {
  constexpr int64_t kSpelt = 256;
  const int64_t size = data.size();
  RunningChecksum sum;
  for (int64_t index = 0; index < size; index++) {
    const Dataset::Lengths length = data.lengths(index);
    const std::array<int64_t, 2> tokens{length.input_tokens, length.target_tokens};
    const uint64_t row = data.content(index);
    sum.add(bytes_of(std::span<const uint64_t>(&row, 1)));
    sum.add(bytes_of(std::span<const int64_t>(tokens)));
  }
  const int64_t stride = std::max<int64_t>(size / kSpelt, 1);
  for (int64_t index = 0; index < size; index += stride) {
    const Sample spelt = data.sample(index);
    sum.add(bytes_of(std::span<const int32_t>(spelt.input_ids)));
    sum.add(bytes_of(std::span<const int32_t>(spelt.labels)));
  }
  return concat(grouped(size), size == 1 ? " sample" : " samples", ", xxh3 ", sum.digits());
}

}  // namespace trainer
