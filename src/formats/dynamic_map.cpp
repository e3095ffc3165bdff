#include "formats/dynamic_map.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace trainer {
namespace {

// torch.linspace(0.1, 1, count) in fp32: from both ends, each value rounded once.
std::vector<float> tenth_to_one(int count) {
  const float step = (1.0f - 0.1f) / static_cast<float>(count - 1);
  std::vector<float> values;
  for (int i = 0; i < count; i++) {
    values.push_back(i < count / 2 ? std::fma(step, static_cast<float>(i), 0.1f)
                                   : std::fma(-step, static_cast<float>(count - 1 - i), 1.0f));
  }
  return values;
}

}  // namespace

DynamicMap dynamic_map(bool with_sign) {
  constexpr std::array<float, 7> kDecades{1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1.0f};
  std::vector<float> values{0.0f, 1.0f};
  int fractions = with_sign ? 1 : 2;  // in the smallest decade; twice as many in each larger one
  for (const float decade : kDecades) {
    const std::vector<float> borders = tenth_to_one(fractions + 1);
    for (size_t i = 0; i + 1 < borders.size(); i++) {
      const float value = decade * ((borders[i] + borders[i + 1]) / 2.0f);
      values.push_back(value);
      if (with_sign) values.push_back(-value);
    }
    fractions *= 2;
  }
  std::ranges::sort(values);
  DynamicMap map{};
  std::ranges::copy(values, map.begin());
  return map;
}

}  // namespace trainer
