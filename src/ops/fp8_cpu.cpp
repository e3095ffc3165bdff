// FP8 on the CPU: quantising, and numbers from codes.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/ceil_div.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/vector_math.h"
#include "ops/fp8.h"

namespace trainer {
namespace {

constexpr float kLeastFp8Row = 1e-12f;  // the largest magnitude of a row counts as this at least

int64_t fp8_grain(int64_t columns) { return std::max<int64_t>(1, 65536 / std::max<int64_t>(columns, 1)); }

// x must be finite.
TRAINER_INLINE uint8_t fp8_code(float x) {
  const uint32_t sign = std::bit_cast<uint32_t>(x) >> 31 << 7;
  const float size = std::min(std::fabs(x), kLargestFp8);
  // Below 2^-6 the codes count steps of 2^-9, which is the last bit of numbers from 2^14 on.
  const uint32_t steps = std::bit_cast<uint32_t>(size + 0x1p14f) - std::bit_cast<uint32_t>(0x1p14f);
  // Others have 3 of fp32's 23 bits of fraction, and the exponent 7 where fp32 has 127.
  const uint32_t bits = std::bit_cast<uint32_t>(size);
  const uint32_t rounded_bits = ((bits + 0x7ffff + (bits >> 20 & 1)) >> 20) - (120 << 3);
  return static_cast<uint8_t>(sign | (size < 0x1p-6f ? steps : rounded_bits));
}

// The bits of a magnitude grow with it; those of infinity and NaN are the largest.
TRAINER_VECTORISED float quantise_fp8_row(const float* __restrict__ x, int64_t count,
                                          uint8_t* __restrict__ codes) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; i++) largest = std::max(largest, std::bit_cast<uint32_t>(x[i]) & 0x7fffffff);
  const float size = std::bit_cast<float>(largest);
  if (!(size <= std::numeric_limits<float>::max())) return size;
  const float scale = std::max(size, kLeastFp8Row) / kLargestFp8;
  for (int64_t i = 0; i < count; i++) codes[i] = fp8_code(x[i] / scale);
  return scale;
}

template <class T>
TRAINER_VECTORISED void widen_fp8_values(const uint8_t* __restrict__ codes, float scale, int64_t count,
                                         T* __restrict__ out) {
  for (int64_t i = 0; i < count; i++) {
    const uint32_t code = codes[i], size = code & 127;
    const float normal = std::bit_cast<float>((size << 20) + (120u << 23));
    const float value = size < 8 ? static_cast<float>(static_cast<int32_t>(size)) * 0x1p-9f : normal;
    const float known = size == 127 ? std::numeric_limits<float>::quiet_NaN() : value;
    out[i] = static_cast<T>((code < 128 ? known : -known) * scale);
  }
}

template <class T>
void widen_fp8_rows(const Fp8Tensor& from, int64_t first, int64_t count, T* out) {
  const uint8_t* codes = from.codes.const_data_ptr<uint8_t>();
  const float* scales = from.scales.const_data_ptr<float>();
  const int64_t columns = from.columns(), step = from.block_columns();
  const int64_t scales_a_row = at::ceil_div(columns, step);
  at::parallel_for(0, count, fp8_grain(columns), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++) {
      const float* own = scales + (first + row) / from.block_rows() * scales_a_row;
      for (int64_t column = 0; column < columns; column += step) {
        widen_fp8_values(codes + (first + row) * columns + column, own[column / step],
                         std::min(step, columns - column), out + row * columns + column);
      }
    }
  });
}

}  // namespace

at::Tensor widen_fp8_cpu(const Fp8Tensor& from, int64_t first, int64_t count, at::ScalarType type) {
  TORCH_CHECK(first >= 0 && count >= 0 && first + count <= from.rows(), "FP8: rows ", first, " to ",
              first + count, " of ", from.rows());
  at::Tensor out = at::empty({count, from.columns()}, from.codes.options().dtype(type));
  if (out.is_meta() || out.numel() == 0) return out;
  switch (type) {
    case at::kFloat:
      widen_fp8_rows(from, first, count, out.mutable_data_ptr<float>());
      break;
    case at::kBFloat16:
      widen_fp8_rows(from, first, count, out.mutable_data_ptr<at::BFloat16>());
      break;
    case at::kHalf:
      widen_fp8_rows(from, first, count, out.mutable_data_ptr<at::Half>());
      break;
    default:
      TORCH_CHECK(false, "FP8 values cannot be made as ", type);
  }
  return out;
}

std::array<int64_t, 2> fp8_blocks(const std::vector<int64_t>& shape, const Fp8Block& block) {
  const auto along = [&](size_t i) { return block[i] == 0 ? 1 : at::ceil_div(shape[i], block[i]); };
  return {along(0), along(1)};
}

Fp8Tensor empty_fp8(const std::vector<int64_t>& shape, const Fp8Block& block, at::Device device) {
  const auto [down, across] = fp8_blocks(shape, block);
  const auto bytes = at::TensorOptions().dtype(at::kByte).device(device);
  return {shape, block, at::empty({shape[0] * shape[1]}, bytes),
          at::empty({down * across}, bytes.dtype(at::kFloat))};
}

Fp8Quantiser::Fp8Quantiser(std::string name, const std::vector<int64_t>& shape)
    : name_(std::move(name)), out_(empty_fp8(shape, kFp8Row, at::kCPU)) {}

void Fp8Quantiser::add(const at::Tensor& values) {
  const at::Tensor wide = values.to(at::kFloat).contiguous();
  const float* x = wide.const_data_ptr<float>();
  int64_t left = wide.numel();
  const int64_t columns = out_.columns();
  if (!begun_.empty()) {
    const int64_t taken = std::min(left, columns - static_cast<int64_t>(begun_.size()));
    begun_.insert(begun_.end(), x, x + taken);
    x += taken;
    left -= taken;
    if (static_cast<int64_t>(begun_.size()) < columns) return;
    add_rows(begun_.data(), 1);
    begun_.clear();
  }
  const int64_t rows = columns == 0 ? 0 : left / columns;
  add_rows(x, rows);
  begun_.assign(x + rows * columns, x + left);
}

void Fp8Quantiser::add_rows(const float* values, int64_t rows) {
  TORCH_CHECK(filled_ + rows <= out_.rows(), "Fp8Quantiser: too many values");
  const int64_t columns = out_.columns();
  uint8_t* codes = out_.codes.mutable_data_ptr<uint8_t>() + filled_ * columns;
  float* scales = out_.scales.mutable_data_ptr<float>() + filled_;
  at::parallel_for(0, rows, fp8_grain(columns), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++)
      scales[row] = quantise_fp8_row(values + row * columns, columns, codes + row * columns);
  });
  if (!std::all_of(scales, scales + rows, [](float scale) { return std::isfinite(scale); })) {
    throw FormatError(
        concat(name_, ": has a value that is infinite or NaN, for which FP8 has no scale; is the file ",
               "damaged? Without model.quantize it can be looked at"));
  }
  filled_ += rows;
}

Fp8Tensor Fp8Quantiser::finish() {
  TORCH_CHECK(begun_.empty() && (filled_ == out_.rows() || out_.columns() == 0),
              "Fp8Quantiser: values are missing");
  return std::move(out_);
}

Fp8Tensor quantise_fp8(const std::string& name, const at::Tensor& values) {
  Fp8Quantiser quantiser(name, values.sizes().vec());
  quantiser.add(values);
  return quantiser.finish();
}

}  // namespace trainer
