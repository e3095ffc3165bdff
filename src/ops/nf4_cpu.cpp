// NF4 on the CPU: quantising, and numbers from codes.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/vector_math.h"
#include "formats/bitsandbytes.h"
#include "ops/nf4.h"

namespace trainer {
namespace {

constexpr float kLeastScale = 1e-38f;       // the smallest divisor of values
constexpr int64_t kBlocksOfAThread = 1024;  // at least
constexpr int64_t kScalesAtOnce = 256;

int64_t divided_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

// Halfway between neighbouring values; a code is the number of borders below x.
constexpr std::array<float, 15> kBorders = [] {
  std::array<float, 15> borders{};
  for (size_t i = 0; i < borders.size(); i++) borders[i] = (kNf4Values[i] + kNf4Values[i + 1]) / 2.0f;
  return borders;
}();

TRAINER_INLINE uint8_t code_of(float x) {
  uint8_t code = 0;
  for (const float border : kBorders) code = static_cast<uint8_t>(code + (x > border ? 1 : 0));
  return code;
}

// The bits of a magnitude grow with it; those of infinity and NaN are the largest.
TRAINER_INLINE uint32_t magnitude_bits(float x) { return std::bit_cast<uint32_t>(x) & 0x7fffffff; }

TRAINER_VECTORISED void quantise_blocks(const float* __restrict__ x, int64_t blocks,
                                        uint8_t* __restrict__ codes, float* __restrict__ scales) {
  for (int64_t block = 0; block < blocks; block++, x += kNf4Block, codes += kNf4Block / 2) {
    uint32_t largest = 0;
    for (int64_t i = 0; i < kNf4Block; i++) largest = std::max(largest, magnitude_bits(x[i]));
    scales[block] = std::bit_cast<float>(largest);
    const float inverse = 1.0f / std::max(scales[block], kLeastScale);
    uint8_t each[kNf4Block];
    for (int64_t i = 0; i < kNf4Block; i++) each[i] = code_of(x[i] * inverse);
    for (int64_t i = 0; i < kNf4Block / 2; i++)
      codes[i] = static_cast<uint8_t>(each[2 * i] << 4 | each[2 * i + 1]);
  }
}

// The last block, if it is shorter. The half behind an odd number of values has the code of 0.
void quantise_rest(const float* x, int64_t count, uint8_t* codes, float& scale) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; i++) largest = std::max(largest, magnitude_bits(x[i]));
  scale = std::max(std::bit_cast<float>(largest), kLeastScale);
  for (int64_t i = 0; i < count; i += 2) {
    const uint8_t odd = code_of(i + 1 < count ? x[i + 1] / scale : 0.0f);
    codes[i / 2] = static_cast<uint8_t>(code_of(x[i] / scale) << 4 | odd);
  }
}

// The 8-bit code for each of the 65536 steps from -1 to 1.
std::vector<uint8_t> make_dynamic_codes() {
  constexpr int kSteps = 65536;
  const DynamicMap map = dynamic_map(true);
  std::vector<uint8_t> codes(kSteps);
  size_t code = 0;
  for (int i = 0; i < kSteps; i++) {
    const float value = -1.0f + 2.0f * static_cast<float>(i) / (kSteps - 1);
    while (code + 1 < map.size() && 0.5f * (map[code] + map[code + 1]) < value) code++;
    codes[static_cast<size_t>(i)] = static_cast<uint8_t>(code);
  }
  return codes;
}

void quantise_scales(const float* scales, int64_t count, float offset, uint8_t* codes, float* nested) {
  static const std::vector<uint8_t> dynamic_codes = make_dynamic_codes();
  for (int64_t first = 0; first < count; first += kNf4ScaleBlock) {
    const int64_t end = std::min(first + kNf4ScaleBlock, count);
    float& largest = nested[first / kNf4ScaleBlock];
    largest = 0.0f;
    for (int64_t i = first; i < end; i++) largest = std::max(largest, std::fabs(scales[i] - offset));
    const float inverse = 1.0f / largest;
    for (int64_t i = first; i < end; i++) {
      if (largest == 0.0f) {
        codes[i] = 0;
        continue;
      }
      const float x = std::clamp((scales[i] - offset) * inverse, -1.0f, 1.0f);
      codes[i] = dynamic_codes[static_cast<uint16_t>((x + 1.0f) * 0.5f * 65535.0f + 0.5f)];
    }
  }
}

// The scales of blocks from `first`. Not compiled for processors with fused multiply-add, because the product
// is rounded before the sum.
void decode_scales(const Nf4Tensor& tensor, int64_t first, int64_t count, float* out) {
  if (!tensor.double_quantised()) {
    std::memcpy(out, tensor.scales.const_data_ptr<float>() + first,
                static_cast<size_t>(count) * sizeof(float));
    return;
  }
  static const DynamicMap map = dynamic_map(true);
  const uint8_t* codes = tensor.scales.const_data_ptr<uint8_t>();
  const float* nested = tensor.nested_scales.const_data_ptr<float>();
  for (int64_t i = 0; i < count; i++)
    out[i] = map[codes[first + i]] * nested[(first + i) / kNf4ScaleBlock] + tensor.offset;
}

// The lanes of a vector, by the size of a value: values; pairs of values; the bytes with the codes of the
// pairs.
template <size_t size>
struct Lanes;
template <>
struct Lanes<4> {
  typedef uint32_t Values __attribute__((vector_size(64)));
  typedef uint64_t Pairs __attribute__((vector_size(64)));
  typedef uint8_t Bytes __attribute__((vector_size(8)));
};
template <>
struct Lanes<2> {
  typedef uint16_t Values __attribute__((vector_size(64)));
  typedef uint32_t Pairs __attribute__((vector_size(64)));
  typedef uint8_t Bytes __attribute__((vector_size(16)));
};

// Whole blocks. Each block multiplies the 16 values by its scale and looks its values up in that table, as
// many at a time as a vector has lanes.
template <class T>
TRAINER_VECTORISED void dequantise_blocks(const uint8_t* __restrict__ codes, const float* __restrict__ scales,
                                          int64_t blocks, T* __restrict__ out) {
  using Values = typename Lanes<sizeof(T)>::Values;
  using Pairs = typename Lanes<sizeof(T)>::Pairs;
  using Bytes = typename Lanes<sizeof(T)>::Bytes;
  constexpr size_t kLanes = sizeof(Values) / sizeof(T);
  for (int64_t block = 0; block < blocks; block++) {
    T table[kLanes] = {};
    for (size_t i = 0; i < kNf4Values.size(); i++) table[i] = static_cast<T>(kNf4Values[i] * scales[block]);
    Values values;
    std::memcpy(&values, table, sizeof values);
    for (size_t part = 0; part < kNf4Block / kLanes; part++, codes += sizeof(Bytes), out += kLanes) {
      Bytes bytes;
      std::memcpy(&bytes, codes, sizeof bytes);
      const Pairs both = __builtin_convertvector(bytes, Pairs);
      const Pairs indices = both >> 4 | (both & 15) << (8 * sizeof(T));
      const Values picked = __builtin_shuffle(values, reinterpret_cast<Values>(indices));
      std::memcpy(static_cast<void*>(out), &picked, sizeof picked);
    }
  }
}

// Part of a block: the values [first, end) of the tensor.
template <class T>
void dequantise_part(const uint8_t* codes, float scale, int64_t first, int64_t end, T* out) {
  for (int64_t i = first; i < end; i++) {
    const uint8_t code = i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 15;
    *out++ = static_cast<T>(kNf4Values[code] * scale);
  }
}

template <class T>
void dequantise_into(const Nf4Tensor& tensor, int64_t first, int64_t count, T* out) {
  const uint8_t* codes = tensor.codes.const_data_ptr<uint8_t>();
  const int64_t end = first + count;
  at::parallel_for(first / kNf4Block, divided_up(end, kNf4Block), kBlocksOfAThread,
                   [&](int64_t begin, int64_t stop) {
                     float scales[kScalesAtOnce];
                     for (int64_t block = begin; block < stop;) {
                       const int64_t blocks = std::min(kScalesAtOnce, stop - block);
                       decode_scales(tensor, block, blocks, scales);
                       for (int64_t at = 0; at < blocks;) {
                         const int64_t from = std::max((block + at) * kNf4Block, first);
                         int64_t whole = 0;
                         if (from == (block + at) * kNf4Block)
                           whole = std::min(blocks - at, (end - from) / kNf4Block);
                         if (whole > 0) {
                           dequantise_blocks(codes + from / 2, scales + at, whole, out + (from - first));
                           at += whole;
                         } else {
                           const int64_t to = std::min((block + at + 1) * kNf4Block, end);
                           dequantise_part(codes, scales[at], from, to, out + (from - first));
                           at++;
                         }
                       }
                       block += blocks;
                     }
                   });
}

}  // namespace

Nf4Tensor empty_nf4(const std::vector<int64_t>& shape, bool double_quant, at::Device device) {
  Nf4Tensor out;
  out.shape = shape;
  const int64_t count = out.numel(), blocks = divided_up(count, kNf4Block);
  const auto bytes = at::TensorOptions().dtype(at::kByte).device(device);
  out.codes = at::empty({divided_up(count, 2)}, bytes);
  out.scales = at::empty({blocks}, double_quant ? bytes : bytes.dtype(at::kFloat));
  if (double_quant)
    out.nested_scales = at::empty({divided_up(blocks, kNf4ScaleBlock)}, bytes.dtype(at::kFloat));
  return out;
}

Nf4Quantiser::Nf4Quantiser(std::string name, std::vector<int64_t> shape)
    : name_(std::move(name)), out_(empty_nf4(shape, /*double_quant=*/false, at::kCPU)) {}

void Nf4Quantiser::add(const at::Tensor& values) {
  const at::Tensor wide = values.to(at::kFloat).contiguous();
  const int64_t count = wide.numel(), whole = count / kNf4Block, block = filled_ / kNf4Block;
  TORCH_CHECK(filled_ % kNf4Block == 0 && filled_ + count <= out_.numel(), "Nf4Quantiser: a wrong piece");
  const float* x = wide.const_data_ptr<float>();
  uint8_t* codes = out_.codes.mutable_data_ptr<uint8_t>() + filled_ / 2;
  float* scales = out_.scales.mutable_data_ptr<float>() + block;
  at::parallel_for(0, whole, kBlocksOfAThread, [&](int64_t begin, int64_t end) {
    quantise_blocks(x + begin * kNf4Block, end - begin, codes + begin * kNf4Block / 2, scales + begin);
  });
  const int64_t rest = count % kNf4Block, blocks = divided_up(count, kNf4Block);
  if (rest > 0) quantise_rest(x + whole * kNf4Block, rest, codes + whole * kNf4Block / 2, scales[whole]);
  if (!std::all_of(scales, scales + blocks, [](float scale) { return std::isfinite(scale); })) {
    throw FormatError(concat(name_,
                             ": has a value that is infinite or NaN, which NF4 cannot hold; is the file ",
                             "damaged? Without model.quantize it can be looked at"));
  }
  filled_ += count;
}

Nf4Tensor Nf4Quantiser::finish(bool double_quant) {
  TORCH_CHECK(filled_ == out_.numel(), "Nf4Quantiser: values are missing");
  if (!double_quant) return out_;
  Nf4Tensor out = empty_nf4(out_.shape, /*double_quant=*/true, at::kCPU);
  out.codes = out_.codes;
  const int64_t blocks = out.scales.numel();
  const float* scales = out_.scales.const_data_ptr<float>();
  if (blocks > 0) out.offset = out_.scales.mean().item<float>();
  quantise_scales(scales, blocks, out.offset, out.scales.mutable_data_ptr<uint8_t>(),
                  out.nested_scales.mutable_data_ptr<float>());
  return out;
}

Nf4Tensor quantise_nf4(const std::string& name, const at::Tensor& values, bool double_quant) {
  Nf4Quantiser quantiser(name, values.sizes().vec());
  quantiser.add(values);
  return quantiser.finish(double_quant);
}

at::Tensor scales_of(const Nf4Tensor& tensor) {
  at::Tensor out = at::empty({tensor.scales.numel()}, at::kFloat);
  decode_scales(tensor, 0, out.numel(), out.mutable_data_ptr<float>());
  return out;
}

at::Tensor dequantise_nf4(const Nf4Tensor& tensor, int64_t first, int64_t count, at::ScalarType type) {
  TORCH_CHECK(first >= 0 && count >= 0 && first + count <= tensor.numel(), "NF4: values ", first, " to ",
              first + count, " of ", tensor.numel());
  at::Tensor out = at::empty({count}, type);
  switch (type) {
    case at::kFloat:
      dequantise_into(tensor, first, count, out.mutable_data_ptr<float>());
      break;
    case at::kBFloat16:
      dequantise_into(tensor, first, count, out.mutable_data_ptr<at::BFloat16>());
      break;
    case at::kHalf:
      dequantise_into(tensor, first, count, out.mutable_data_ptr<at::Half>());
      break;
    default:
      TORCH_CHECK(false, "NF4 values cannot be made as ", type);
  }
  return out;
}

}  // namespace trainer
