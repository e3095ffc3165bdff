// The codes of 8-bit moments are the nearest ones in bitsandbytes' maps, on every processor.
#include "optim/moment_codes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "trainer/formats/safetensors.h"

namespace trainer {
namespace {

using Values = std::array<float, 256>;
using Codes = std::array<uint8_t, 256>;

struct Case {
  const char* map;
  const MomentCodes& codes;
  const MomentCoder& coder;
};

std::vector<Case> both() {
  return {{"map.signed", codes_of_exp_avg(), coder_of_exp_avg()},
          {"map.unsigned", codes_of_exp_avg_sq(), coder_of_exp_avg_sq()}};
}

// Those of this processor that are not the plain ones.
std::vector<Instructions> vector_instructions() {
  std::vector<Instructions> out;
  for (const Instructions with : {Instructions::avx2, Instructions::avx512}) {
    if (with <= best_instructions()) out.push_back(with);
  }
  return out;
}

// Finds the codes with all instructions that there are.
Codes encoded(const MomentCoder& coder, const Values& values, float factor = 1.0f) {
  Codes codes;
  coder.encode(values, factor, codes, Instructions::any);
  for (const Instructions with : vector_instructions()) {
    Codes others;
    coder.encode(values, factor, others, with);
    EXPECT_EQ(codes, others) << "instructions " << static_cast<int>(with);
  }
  return codes;
}

// Calls `visit` for values around every limit, and for all magnitudes from 2^-30 to 1 in small steps, with
// both signs where the map has both.
template <class Visit>
void for_many_values(const Case& c, const Visit& visit) {
  Values values{};
  size_t filled = 0;
  const bool with_sign = c.codes.values[0] < 0;
  const auto add = [&](float value) {
    values[filled++] = value;
    if (filled < values.size()) return;
    filled = 0;
    visit(values, encoded(c.coder, values));
  };
  for (size_t i = 0; i < 255; i++) {
    float value = c.codes.limits[i];
    for (int n = 0; n < 5; n++) value = std::nextafter(value, -2.0f);
    for (int n = 0; n < 10; n++, value = std::nextafter(value, 2.0f)) {
      if (value >= 0 || with_sign) add(value);
    }
  }
  for (uint32_t bits = std::bit_cast<uint32_t>(0x1p-30f); bits <= 0x3f800000u; bits += 1009) {
    add(std::bit_cast<float>(bits));
    if (with_sign) add(-std::bit_cast<float>(bits));
  }
  while (filled > 0) add(1.0f);
}

TEST(MomentCodes, HaveTheValuesOfBitsandbytes) {
  const SafetensorsFile file = read_safetensors(SOURCE_DIR "/tests/goldens/optim/adamw_8bit.safetensors");
  for (const Case& c : both()) {
    const auto* expected = reinterpret_cast<const float*>(file.tensors.at(c.map).data);
    for (size_t i = 0; i < 256; i++)
      EXPECT_EQ(std::bit_cast<uint32_t>(c.codes.values[i]), std::bit_cast<uint32_t>(expected[i]))
          << c.map << i;
  }
}

TEST(MomentCodes, AreThoseOfTheNearestValue) {
  for (const Case& c : both()) {
    int64_t seen = 0;
    for_many_values(c, [&](const Values& values, const Codes& codes) {
      for (size_t i = 0; i < values.size(); i++) {
        const double x = values[i];
        if (x < 0 && codes[i] == 126) continue;  // keeps its sign
        const auto distance = [&](int code) {
          return code < 0 || code > 255
                     ? 9.0
                     : std::abs(static_cast<double>(c.codes.values[static_cast<size_t>(code)]) - x);
        };
        const double own = distance(codes[i]), rounding = 2.5e-7 * std::abs(x);  // of the middle in fp32
        ASSERT_LE(own, distance(codes[i] - 1) + rounding) << c.map << x;
        ASSERT_LE(own, distance(codes[i] + 1) + rounding) << c.map << x;
        seen++;
      }
    });
    EXPECT_GT(seen, 200'000);
  }
}

TEST(MomentCodes, InTheMiddleBetweenTwoTheEvenOneIsTaken) {
  const MomentCodes& codes = codes_of_exp_avg_sq();
  Values middles{};
  for (size_t i = 0; i < 255; i++) middles[i] = (codes.values[i] + codes.values[i + 1]) * 0.5f;
  const Codes found = encoded(coder_of_exp_avg_sq(), middles);
  for (size_t i = 0; i < 255; i++) EXPECT_EQ(found[i], i % 2 == 0 ? i : i + 1);
}

TEST(MomentCodes, ANegativeValueKeepsItsSignAndZeroIsZero) {
  Values values{};
  values[0] = -1e-30f;
  values[1] = 1e-30f;
  values[2] = -0.0f;
  values[3] = -1.0f;
  values[4] = 1.0f;
  values[5] = std::nextafter(1.0f, 2.0f);
  values[6] = std::nextafter(-1.0f, -2.0f);
  const Codes codes = encoded(coder_of_exp_avg(), values);
  EXPECT_EQ(codes[0], 126);
  EXPECT_LT(codes_of_exp_avg().values[126], 0.0f);
  for (const size_t i : {1, 2, 7}) EXPECT_EQ(codes_of_exp_avg().values[codes[i]], 0.0f);
  for (const size_t i : {3, 6}) EXPECT_EQ(codes[i], 0);
  for (const size_t i : {4, 5}) EXPECT_EQ(codes_of_exp_avg().values[codes[i]], 1.0f);
}

// Zero, and what is below the smallest normal number.
TEST(MomentCodes, OfTheSmallestNumbersAreThoseOfZero) {
  Values values{};
  for (size_t i = 0; i < values.size(); i++)
    values[i] = std::bit_cast<float>(static_cast<uint32_t>(i * i * 129 + i % 2));
  for (const Case& c : both()) {
    for (const uint8_t code : encoded(c.coder, values)) EXPECT_EQ(c.codes.values[code], 0.0f);
  }
  for (float& value : values) value = -value;
  const Codes negative = encoded(coder_of_exp_avg(), values);
  EXPECT_EQ(negative[0], 127);
  for (size_t i = 1; i < negative.size(); i++) EXPECT_EQ(negative[i], 126) << i;
}

TEST(MomentCodes, AreThoseOfTheScaledValue) {
  Values values, scaled;
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const Case& c : both()) {
    const float factor = 0.8317f;
    for (size_t i = 0; i < values.size(); i++) {
      const float value = std::clamp(normal(random) / 3.0f, -1.0f, 1.0f);
      values[i] = c.codes.values[0] < 0 ? value : value * value;
      scaled[i] = values[i] * factor;
    }
    EXPECT_EQ(encoded(c.coder, values, factor), encoded(c.coder, scaled));
  }
}

TEST(MomentCodes, AreDecodedAlikeOnEveryProcessor) {
  Codes codes;
  for (size_t i = 0; i < 256; i++) codes[i] = static_cast<uint8_t>(37 * i);
  for (const Case& c : both()) {
    Values values;
    c.coder.decode(codes, values, Instructions::any);
    for (size_t i = 0; i < 256; i++) EXPECT_EQ(values[i], c.codes.values[codes[i]]);
    for (const Instructions with : vector_instructions()) {
      Values others;
      c.coder.decode(codes, others, with);
      EXPECT_EQ(values, others);
    }
  }
}

}  // namespace
}  // namespace trainer
