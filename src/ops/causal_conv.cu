// A causal convolution of each channel over the tokens of a sample, with or without SiLU, and its gradients
// (src/ops/causal_conv.h). A thread goes through a tile of a sample's tokens with kWidth channels, and holds
// the tokens that it needs again. Open: Element, kWidth.
#include "ops/run_table.cuh"

constexpr int kMostTaps = 4;

struct ConvShape {
  long long x_row, g_row;  // distances of rows in x and in the gradient; other tensors are dense
  int channels, taps, tile, silu, first_tile;
};

struct Channels {
  float at[kWidth];
};

struct ConvTile {
  DEVICE ConvTile(const RunTable& runs, const ConvShape& shape)
      : channel((blockIdx.y * blockDim.x + threadIdx.x) * kWidth) {
    const int block = static_cast<int>(blockIdx.x), run = run_of_tile(runs, block);
    row = runs.first[run];
    first = (block - runs.tiles[run]) * shape.tile;
    tokens = runs.tokens[run];
    end = first + shape.tile < tokens ? first + shape.tile : tokens;
  }

  int channel;
  long long row;           // of the run's first token
  int first, end, tokens;  // the tile's first token in the run, the one behind it, and the run's tokens
};

// What a thread knows of the last tokens: those of `back` tokens ago.
struct LastTokens {
  DEVICE void push(const Channels& next) {
    UNROLL for (int back = kMostTaps - 1; back > 0; back--) ago[back] = ago[back - 1];
    ago[0] = next;
  }
  Channels ago[kMostTaps] = {};
};

// The weights by distance; 0 beyond the convolution.
struct ConvWeights {
  DEVICE ConvWeights(const Element* weight, const ConvShape& shape, int channel) {
    UNROLL for (int back = 0; back < kMostTaps; back++) {
      UNROLL for (int k = 0; k < kWidth; k++) {
        const bool is_one = back < shape.taps && channel + k < shape.channels;
        of[back].at[k] = is_one ? wide(weight[(channel + k) * shape.taps + shape.taps - 1 - back]) : 0.0f;
      }
    }
  }
  Channels of[kMostTaps];
};

DEVICE Channels channels_of(const Element* from) {
  const auto pack = load<kWidth>(from);
  Channels out;
  UNROLL for (int k = 0; k < kWidth; k++) out.at[k] = wide(pack.at[k]);
  return out;
}

DEVICE void put_channels(Element* to, const Channels& x) {
  Pack<Element, kWidth> pack;
  UNROLL for (int k = 0; k < kWidth; k++) pack.at[k] = narrow<Element>(x.at[k]);
  store<kWidth>(to, pack);
}

// Tokens beyond the convolution's reach are left out, not multiplied by 0: they may be infinite.
DEVICE Channels weighted(const LastTokens& tokens, const ConvWeights& weights, int taps) {
  Channels sum = {};
  UNROLL for (int back = 0; back < kMostTaps; back++) {
    UNROLL for (int k = 0; k < kWidth; k++) {
      if (back < taps) sum.at[k] += weights.of[back].at[k] * tokens.ago[back].at[k];
    }
  }
  return sum;
}

DEVICE void conv_sigmoid(float x, float& value, float& slope) {
  const float e = expf(-fabsf(x)), larger = 1.0f / (1.0f + e), smaller = e * larger;
  value = x < 0.0f ? smaller : larger;
  slope = smaller * larger;
}

KERNEL convolve(const Element* x, const Element* weight, Element* out, GRID_CONSTANT const RunTable runs,
                ConvShape shape) {
  const ConvTile tile(runs, shape);
  if (tile.channel >= shape.channels) return;
  const ConvWeights weights(weight, shape, tile.channel);
  LastTokens seen;
  const int before = tile.first - (shape.taps - 1);
  for (int t = before < 0 ? 0 : before; t < tile.end; t++) {
    seen.push(channels_of(x + (tile.row + t) * shape.x_row + tile.channel));
    if (t < tile.first) continue;
    Channels sum = weighted(seen, weights, shape.taps);
    UNROLL for (int k = 0; k < kWidth; k++) {
      float value, slope;
      const float z = rounded<Element>(sum.at[k]);
      if (shape.silu == 0) continue;
      conv_sigmoid(z, value, slope);
      sum.at[k] = z * value;
    }
    put_channels(out + (tile.row + t) * shape.channels + tile.channel, sum);
  }
}

// The gradient of the weighted sum of a token.
DEVICE Channels before_silu(const Channels& g, const Channels& sum, int silu) {
  Channels out;
  UNROLL for (int k = 0; k < kWidth; k++) {
    float value, slope;
    const float z = rounded<Element>(sum.at[k]);
    conv_sigmoid(z, value, slope);
    out.at[k] = silu != 0 ? g.at[k] * (value + z * slope) : g.at[k];
  }
  return out;
}

// weight_parts [tiles, kMostTaps, channels], by distance: the gradient of the weight in each tile; or
// nullptr.
KERNEL convolve_backward(const Element* g, const Element* x, const Element* weight, Element* gx,
                         float* weight_parts, GRID_CONSTANT const RunTable runs, ConvShape shape) {
  const ConvTile tile(runs, shape);
  if (tile.channel >= shape.channels) return;
  const ConvWeights weights(weight, shape, tile.channel);
  LastTokens seen, later;  // x, and the sums' gradients, of which the newest is that of token t
  Channels of_weight[kMostTaps] = {};
  const int before = tile.first - (shape.taps - 1);
  for (int t = before < 0 ? 0 : before; t < tile.end + kMostTaps - 1; t++) {
    Channels of_sum = {};
    if (t < tile.tokens) {
      seen.push(channels_of(x + (tile.row + t) * shape.x_row + tile.channel));
      if (t < tile.first) continue;
      const Channels of_out = channels_of(g + (tile.row + t) * shape.g_row + tile.channel);
      of_sum = before_silu(of_out, weighted(seen, weights, shape.taps), shape.silu);
    }
    later.push(of_sum);
    const bool is_own = t < tile.end && weight_parts != nullptr;
    UNROLL for (int back = 0; back < kMostTaps; back++) {
      UNROLL for (int k = 0; k < kWidth; k++) {
        if (is_own && back < shape.taps) of_weight[back].at[k] += of_sum.at[k] * seen.ago[back].at[k];
      }
    }
    const int done = t - (kMostTaps - 1);  // the sums that see this token all have their gradient
    if (done < tile.first) continue;
    Channels sum = {};
    UNROLL for (int ahead = 0; ahead < kMostTaps; ahead++) {
      UNROLL for (int k = 0; k < kWidth; k++) {
        if (ahead < shape.taps) sum.at[k] += weights.of[ahead].at[k] * later.ago[kMostTaps - 1 - ahead].at[k];
      }
    }
    put_channels(gx + (tile.row + done) * shape.channels + tile.channel, sum);
  }
  if (weight_parts == nullptr) return;
  float* const to =
      weight_parts + (shape.first_tile + static_cast<long long>(blockIdx.x)) * kMostTaps * shape.channels;
  UNROLL for (int back = 0; back < kMostTaps; back++) {
    Pack<float, kWidth> pack;
    UNROLL for (int k = 0; k < kWidth; k++) pack.at[k] = of_weight[back].at[k];
    store<kWidth>(to + back * shape.channels + tile.channel, pack);
  }
}

// Sums the parts over the tiles, in their order: g_weight [channels, taps]. A thread has a channel, and
// blockIdx.y is the distance.
KERNEL sum_weight_parts(const float* parts, Element* g_weight, int tiles, int channels, int taps) {
  const long long channel = thread_index();
  if (channel >= channels) return;
  const int back = static_cast<int>(blockIdx.y);
  float sum = 0.0f;
  for (int tile = 0; tile < tiles; tile++)
    sum += parts[(static_cast<long long>(tile) * kMostTaps + back) * channels + channel];
  g_weight[channel * taps + taps - 1 - back] = narrow<Element>(sum);
}
