// Products of a few rows with weights in NF4 or FP8 as they are stored (src/ops/coded_product.h). Open:
// Element, kWidth (1: any sizes and addresses).
//
// A block has 16 outputs of a weight. Its warps go through the inputs side by side, 128 at a time; four
// threads of a warp share these of an output and of the eighth behind it. So a thread reads 16 bytes of a row
// at once, and a code is read once for up to 32 rows with tensor cores, or 8 without. How a sum is made
// depends on the weight's shape alone: for each warp over its inputs in order, then over the warps, then over
// the parts into which long inputs are split.
#include "device/mma.cuh"
#include "ops/fp8.cuh"
#include "ops/nf4.cuh"

constexpr int kOutputs = 16, kWarps = 8;  // of a block
constexpr int kMostWeights = 4;           // of a launch

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr bool kTensorCores = false;  // Turing's have no bf16
#else
constexpr bool kTensorCores = sizeof(Element) == 2 && kWidth > 1;
#endif
constexpr int kTiles = 4;                             // of eight rows
constexpr int kRows = kTensorCores ? 8 * kTiles : 8;  // with one reading of the codes

// Codes of 16 bytes, and their scale.
struct Piece {
  Pack<unsigned, 4> codes = {};
  float scale = 0.0f;
};

// The numbers of NF4's codes, where each has a bank of its own.
struct Nf4Values {
  float at[16];
};

struct Nf4Codes {
  static constexpr int kPiece = 32;  // codes in 16 bytes

  DEVICE float scale(unsigned long long block) const {
    if (nested_scales == nullptr) return static_cast<const float*>(scales)[block];
    const float of_code = scale_map[static_cast<const unsigned char*>(scales)[block]];
    return nested_scale(of_code, nested_scales[block / 256], offset);
  }
  DEVICE Piece piece(int output, int input, int inputs) const {
    const unsigned long long at = static_cast<unsigned long long>(output) * inputs + input;
    return {load<4>(reinterpret_cast<const unsigned*>(codes + at / 2)), scale(at / 64)};
  }
  static DEVICE float value(const Piece& piece, int i, const float* values) {
    return values[piece.codes.at[i / 8] >> (i / 2 % 4 * 8 + (i % 2 == 0 ? 4 : 0)) & 15u] * piece.scale;
  }
  DEVICE float value_at(int output, int input, int inputs, const float* values) const {
    const unsigned long long at = static_cast<unsigned long long>(output) * inputs + input;
    return values[codes[at / 2] >> (at % 2 == 0 ? 4 : 0) & 15] * scale(at / 64);
  }

  const unsigned char* codes;
  const void* scales;  // fp32, or with nested_scales codes of scale_map
  const float *nested_scales, *scale_map;
  float offset;
};

struct Fp8Codes {
  static constexpr int kPiece = 16;

  DEVICE float scale(int output, int input) const {
    const int column = scales_a_row == 1 ? 0 : input / block_columns;
    return scales[static_cast<long long>(output / block_rows) * scales_a_row + column];
  }
  DEVICE Piece piece(int output, int input, int inputs) const {
    const unsigned char* from = codes + static_cast<long long>(output) * inputs + input;
    return {load<4>(reinterpret_cast<const unsigned*>(from)), scale(output, input)};
  }
  static DEVICE float value(const Piece& piece, int i, const float*) {
    return fp8_value(piece.codes.at[i / 4] >> i % 4 * 8 & 255u) * piece.scale;
  }
  DEVICE float value_at(int output, int input, int inputs, const float*) const {
    return fp8_value(codes[static_cast<long long>(output) * inputs + input]) * scale(output, input);
  }

  const unsigned char* codes;
  const float* scales;
  int block_rows, block_columns, scales_a_row;
};

// Where the products with a weight go: out [rows, outputs], or sums [parts, rows, outputs] that sum_parts
// adds up. Its blocks are those from first_block on: for each part all outputs.
struct CodedOutput {
  Element* out;
  float* sums;
  const Element* bias;
  int outputs, parts, first_block;
};

template <class Codes>
struct CodedWeights {
  Codes codes[kMostWeights];
  CodedOutput to[kMostWeights];
  int count;
};

// x [rows, inputs], whose rows are `stride` apart.
struct FewRows {
  const Element* x;
  long long stride;
  int rows, inputs;
};

// The two outputs whose sums a thread adds to, and the inputs at which its warp begins and by which it goes
// on.
struct Share {
  int upper, lower, first, step;
};

// sums[n] are those of mma.cuh for the rows 8 n to 8 n + 7 of x, which are columns there. The inputs may be
// in any order that is the same in both factors: a thread takes four after another of its piece for its four
// places among the 16 of an instruction.
template <class Codes>
DEVICE void add_products_by_mma(float (&sums)[kTiles][4], const FewRows& in, const Codes& codes,
                                const Share& share, const float* values) {
  const int lane = threadIdx.x % 32, row = lane / 4;
  int k = share.first + lane % 4 * Codes::kPiece;
  Piece upper, lower, next_upper, next_lower;
  const auto fetch = [&](int input) {
    if (input < in.inputs) {
      next_upper = codes.piece(share.upper, input, in.inputs);
      next_lower = codes.piece(share.lower, input, in.inputs);
    } else {
      next_upper = next_lower = {};
    }
  };
  fetch(k);
  for (int first = share.first; first < in.inputs; first += share.step, k += share.step) {
    upper = next_upper;
    lower = next_lower;
    fetch(k + share.step);
    UNROLL for (int i = 0; i < Codes::kPiece; i += 8) {
      Pack<unsigned, 4> x[kTiles] = {};
      UNROLL for (int n = 0; n < kTiles; n++) {
        if (8 * n + row < in.rows && k < in.inputs)
          x[n] = load<4>(reinterpret_cast<const unsigned*>(in.x + (8 * n + row) * in.stride + k + i));
      }
      UNROLL for (int j = 0; j < 8; j += 4) {
        const auto pair = [&](const Piece& piece, int at) {
          return bf16_pair(Codes::value(piece, at, values), Codes::value(piece, at + 1, values));
        };
        const unsigned a[4] = {pair(upper, i + j), pair(lower, i + j), pair(upper, i + j + 2),
                               pair(lower, i + j + 2)};
        UNROLL for (int n = 0; n < kTiles; n++) {
          if (8 * n < in.rows) mma_m16n8k16(sums[n], a, x[n].at[j / 2], x[n].at[j / 2 + 1]);
        }
      }
    }
  }
}

// sums[row] are those of the upper and of the lower output, of a quarter of the warp's inputs.
template <class Codes>
DEVICE void add_products(float (&sums)[kRows][2], const FewRows& in, const Codes& codes, const Share& share,
                         const float* values) {
  for (int k = share.first + threadIdx.x % 4 * Codes::kPiece; k < in.inputs; k += share.step) {
    const auto upper = codes.piece(share.upper, k, in.inputs), lower = codes.piece(share.lower, k, in.inputs);
    UNROLL for (int i = 0; i < Codes::kPiece; i += kWidth) {
      float a[kWidth], b[kWidth];
      UNROLL for (int j = 0; j < kWidth; j++) {
        a[j] = rounded<Element>(Codes::value(upper, i + j, values));
        b[j] = rounded<Element>(Codes::value(lower, i + j, values));
      }
      UNROLL for (int row = 0; row < kRows; row++) {
        if (row >= in.rows) continue;
        const auto x = load<kWidth>(in.x + row * in.stride + k + i);
        UNROLL for (int j = 0; j < kWidth; j++) {
          sums[row][0] += wide(x.at[j]) * a[j];
          sums[row][1] += wide(x.at[j]) * b[j];
        }
      }
    }
  }
}

// The same for any sizes: every fourth input.
template <class Codes>
DEVICE void add_products_one_by_one(float (&sums)[kRows][2], const FewRows& in, const Codes& codes,
                                    const Share& share, const float* values) {
  for (int first = share.first; first < in.inputs; first += share.step) {
    constexpr int kInputs = 4 * Codes::kPiece;
    const int end = first + kInputs < in.inputs ? first + kInputs : in.inputs;
    for (int k = first + threadIdx.x % 4; k < end; k += 4) {
      const float a = rounded<Element>(codes.value_at(share.upper, k, in.inputs, values));
      const float b = rounded<Element>(codes.value_at(share.lower, k, in.inputs, values));
      UNROLL for (int row = 0; row < kRows; row++) {
        if (row >= in.rows) continue;
        const float x = wide(in.x[row * in.stride + k]);
        sums[row][0] += x * a;
        sums[row][1] += x * b;
      }
    }
  }
}

// One more of each output, so that outputs at one row lie in different banks.
using SumsOfWarp = float[kOutputs][kRows + 1];

// The warp's sums of its outputs and inputs, for up to kRows rows.
template <class Codes>
DEVICE void multiply_by_warp(SumsOfWarp& to, const FewRows& in, const Codes& codes, const Share& share,
                             const float* values) {
  const int lane = threadIdx.x % 32;
  if constexpr (kTensorCores) {
    float sums[kTiles][4] = {};
    add_products_by_mma(sums, in, codes, share, values);
    UNROLL for (int n = 0; n < kTiles; n++) {
      UNROLL for (int i = 0; i < 4; i++) to[lane / 4 + i / 2 * 8][8 * n + lane % 4 * 2 + i % 2] = sums[n][i];
    }
  } else {
    float sums[kRows][2] = {};
    if constexpr (kWidth > 1) {
      add_products(sums, in, codes, share, values);
    } else {
      add_products_one_by_one(sums, in, codes, share, values);
    }
    UNROLL for (int row = 0; row < kRows; row++) {
      UNROLL for (int i = 0; i < 2; i++) {
        const float sum = over_row_of_tile<Sum>(sums[row][i]);
        if (lane % 4 == 0) to[lane / 4 + i * 8][row] = sum;
      }
    }
  }
}

DEVICE void put_output(const CodedOutput& to, long long row, int output, float sum) {
  Element y = narrow<Element>(sum);
  if (to.bias != nullptr) y = narrow<Element>(wide(y) + wide(to.bias[output]));
  to.out[row * to.outputs + output] = y;
}

template <class Codes>
DEVICE void multiply(const FewRows& in, const CodedWeights<Codes>& weights, const float* values) {
  __shared__ SumsOfWarp sums[kWarps];
  int weight = weights.count - 1;
  while (static_cast<int>(blockIdx.x) < weights.to[weight].first_block) weight--;
  const CodedOutput& to = weights.to[weight];
  const int warp = threadIdx.x / 32, block = blockIdx.x - to.first_block,
            blocks = (to.outputs + kOutputs - 1) / kOutputs, part = block / blocks,
            first_output = block % blocks * kOutputs;
  const auto existing = [&](int output) { return output < to.outputs ? output : to.outputs - 1; };
  const int upper = first_output + static_cast<int>(threadIdx.x) % 32 / 4;
  constexpr int kInputs = 4 * Codes::kPiece;
  const Share share{existing(upper), existing(upper + 8), (part * kWarps + warp) * kInputs,
                    to.parts * kWarps * kInputs};
  for (int first = 0; first < in.rows; first += kRows) {
    const int rows = in.rows - first < kRows ? in.rows - first : kRows;
    multiply_by_warp(sums[warp], {in.x + first * in.stride, in.stride, rows, in.inputs},
                     weights.codes[weight], share, values);
    __syncthreads();
    for (int i = threadIdx.x; i < rows * kOutputs; i += blockDim.x) {
      const int row = i / kOutputs, output = first_output + i % kOutputs;
      if (output >= to.outputs) continue;
      float sum = sums[0][i % kOutputs][row];
      for (int n = 1; n < kWarps; n++) sum += sums[n][i % kOutputs][row];
      if (to.parts == 1) {
        put_output(to, first + row, output, sum);
      } else {
        to.sums[(static_cast<long long>(part) * in.rows + first + row) * to.outputs + output] = sum;
      }
    }
    __syncthreads();  // the sums are free for the next rows
  }
}

KERNEL multiply_nf4(FewRows in, GRID_CONSTANT const CodedWeights<Nf4Codes> weights, Nf4Values nf4) {
  __shared__ float values[16];
  if (threadIdx.x < 16) values[threadIdx.x] = nf4.at[threadIdx.x];
  __syncthreads();
  multiply(in, weights, values);
}

KERNEL multiply_fp8(FewRows in, GRID_CONSTANT const CodedWeights<Fp8Codes> weights) {
  multiply(in, weights, nullptr);
}

// The sums of all parts of a weight, in their order. A thread has one output of a row.
KERNEL sum_parts(CodedOutput from, int rows) {
  const long long i = thread_index(), count = static_cast<long long>(rows) * from.outputs;
  if (i >= count) return;
  float sum = from.sums[i];
  for (int part = 1; part < from.parts; part++) sum += from.sums[part * count + i];
  put_output(from, i / from.outputs, static_cast<int>(i % from.outputs), sum);
}
