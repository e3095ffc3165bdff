// NF4 against bitsandbytes (tests/make_goldens/nf4), and against its definition.
#include "ops/nf4.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/safetensors.h"

#include "models/tensor_views.h"
#include "support/error_message.h"
#include "support/reference.h"

namespace trainer {
namespace {

using test::contains;
using test::error_message;

class Goldens {
 public:
  at::Tensor operator()(const std::string& name) const {
    return mapped_tensor(file_.tensors.at(name), file_.mapping);
  }
  std::vector<std::string> cases() const {
    std::vector<std::string> names;
    for (const auto& [name, view] : file_.tensors) {
      if (name.ends_with(".values")) names.push_back(name.substr(0, name.find('.')));
    }
    return names;
  }
  bool has(const std::string& name) const { return file_.tensors.contains(name); }

 private:
  SafetensorsFile file_ =
      read_safetensors(std::filesystem::path(SOURCE_DIR) / "tests/goldens/nf4/cases.safetensors");
};

// Also -0 and 0 differ.
bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         std::memcmp(a.contiguous().const_data_ptr(), b.contiguous().const_data_ptr(), a.nbytes()) == 0;
}

TEST(Nf4, CodesAndScalesAreThoseOfBitsandbytes) {
  const Goldens goldens;
  ASSERT_EQ(goldens.cases().size(), 13);
  for (const std::string& name : goldens.cases()) {
    SCOPED_TRACE(name);
    const Nf4Tensor plain = quantise_nf4(name, goldens(name + ".values"), /*double_quant=*/false);
    EXPECT_TRUE(same_bits(plain.codes, goldens(name + ".codes")));
    EXPECT_TRUE(same_bits(plain.scales, goldens(name + ".absmax")));
    const Nf4Tensor nested = quantise_nf4(name, goldens(name + ".values"), /*double_quant=*/true);
    EXPECT_TRUE(same_bits(nested.codes, goldens(name + ".codes")));
    EXPECT_TRUE(same_bits(nested.scales, goldens(name + ".nested.absmax")));
    EXPECT_TRUE(same_bits(nested.nested_scales, goldens(name + ".nested.nested_absmax")));
    EXPECT_EQ(nested.offset, goldens(name + ".nested.offset").item<float>());
    EXPECT_TRUE(same_bits(scales_of(nested), goldens(name + ".nested.scales")));
  }
}

TEST(Nf4, DequantisedValuesAreThoseOfBitsandbytes) {
  const Goldens goldens;
  int64_t seen = 0;
  for (const std::string& name : goldens.cases()) {
    if (!goldens.has(name + ".fp32")) continue;
    SCOPED_TRACE(name);
    seen++;
    const at::Tensor values = goldens(name + ".values");
    const Nf4Tensor tensor = quantise_nf4(name, values, /*double_quant=*/false);
    const auto all = [&](at::ScalarType type) {
      return dequantise_nf4(tensor, 0, values.numel(), type).view(values.sizes());
    };
    EXPECT_TRUE(same_bits(all(at::kFloat), goldens(name + ".fp32")));
    EXPECT_TRUE(same_bits(all(at::kBFloat16), goldens(name + ".bf16")));
  }
  EXPECT_EQ(seen, 12);
}

// Each value in turn is quantised by hand: the nearest of the 16, times the scale.
TEST(Nf4, AValueBecomesTheNearestOfTheSixteenTimesTheScale) {
  Random random(3);
  const at::Tensor values = random.normal({40, 64});
  const Nf4Tensor tensor = quantise_nf4("w", values, /*double_quant=*/false);
  const at::Tensor back = dequantise_nf4(tensor, 0, values.numel(), at::kFloat).view(values.sizes());
  for (int64_t row = 0; row < values.size(0); row++) {
    const float scale = values[row].abs().max().item<float>();
    for (int64_t i = 0; i < values.size(1); i++) {
      const double x = values[row][i].item<double>();
      double nearest = 0, least = std::numeric_limits<double>::infinity();
      for (const float value : kNf4Values) {
        const double distance = std::fabs(x - static_cast<double>(value) * scale);
        if (distance < least) nearest = static_cast<double>(value) * scale, least = distance;
      }
      EXPECT_NEAR(back[row][i].item<double>(), nearest, 1e-6 * scale);
    }
  }
}

TEST(Nf4, AnyPartOfATensorIsTheSameAsInTheWhole) {
  const Goldens goldens;
  for (const char* name : {"many_scales", "short_last_block", "odd"}) {
    const at::Tensor values = goldens(concat(name, ".values"));
    for (const bool nested : {false, true}) {
      const Nf4Tensor tensor = quantise_nf4(name, values, nested);
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
        const int64_t count = values.numel();
        const at::Tensor whole = dequantise_nf4(tensor, 0, count, type);
        for (const int64_t first :
             {int64_t{0}, int64_t{1}, int64_t{13}, std::min<int64_t>(64, count - 1), count / 2}) {
          for (const int64_t length :
               {int64_t{0}, int64_t{1}, std::min<int64_t>(127, count - first), count - first}) {
            EXPECT_TRUE(
                same_bits(dequantise_nf4(tensor, first, length, type), whole.narrow(0, first, length)))
                << name << " " << first << " " << length;
          }
        }
      }
    }
  }
}

TEST(Nf4, PiecesGiveTheSameAsAllAtOnce) {
  const at::Tensor values = Goldens()("many_scales.values").flatten();
  const Nf4Tensor whole = quantise_nf4("w", values, /*double_quant=*/true);
  Nf4Quantiser quantiser("w", values.sizes().vec());
  for (int64_t first = 0; first < values.numel(); first += 640)
    quantiser.add(values.narrow(0, first, std::min<int64_t>(640, values.numel() - first)));
  const Nf4Tensor pieces = quantiser.finish(/*double_quant=*/true);
  EXPECT_TRUE(same_bits(pieces.codes, whole.codes));
  EXPECT_TRUE(same_bits(pieces.scales, whole.scales));
  EXPECT_TRUE(same_bits(pieces.nested_scales, whole.nested_scales));
  EXPECT_EQ(pieces.offset, whole.offset);
}

TEST(Nf4, AValueThatIsNotFiniteIsRefusedWithTheTensorsName) {
  for (const float value : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
    for (const int64_t place : {0, 63, 130}) {  // the last in the shorter block
      at::Tensor values = at::zeros({131});
      values[place] = value;
      const std::string message =
          error_message<FormatError>([&] { quantise_nf4("layer.weight", values, true); });
      EXPECT_TRUE(contains(message, "layer.weight: has a value that is infinite or NaN")) << message;
    }
  }
}

}  // namespace
}  // namespace trainer
