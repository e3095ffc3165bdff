// The gated delta rule on the CPU.
#include <algorithm>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "device/op.h"
#include "ops/gated_delta.h"
#include "ops/gated_delta_chunk.h"

namespace trainer {
namespace {

// One key head of one run, chunk by chunk, with all of its value heads.
struct ForwardHead {
  ForwardHead(float* memory, const DeltaShape& shape)
      : memory_(memory), keys(memory_, shape), values(memory_, shape) {
    out = memory_.take(kDeltaChunk * values.row);
    states = memory_.take(shape.group() * state_size(shape));
  }
  static int64_t floats(const DeltaShape& shape) { return ForwardHead(nullptr, shape).memory_.taken(); }

 private:
  DeltaMemory memory_;

 public:
  ChunkKeys keys;
  ChunkValues values;
  float *out, *states;
};

// out = e^b (Q S) + P N
void read_out(const ChunkKeys& keys, ChunkValues& c, float* out) {
  scale_rows(c.qs, c.decayed, out, c.row, keys.rows);
  for (int64_t i = 0; i < keys.rows; i += kSmallColumns) {
    small_product<Into::add>({c.p + i * kChunkRow, kChunkRow, 1}, c.n, c.row, out + i * c.row, c.row,
                             {kSmallColumns, c.row - kSmallColumns, i + kSmallColumns});
  }
}

template <class T>
void run_head(float* memory, const DeltaPlaces<T>& in, const TokenRun& run, int64_t head, const float* first,
              T* out, float* kept, float* last) {
  const DeltaShape& s = in.shape;
  ForwardHead work(memory, s);
  const int64_t size = state_size(s), stored = s.key_dim * s.value_dim, row = row_distance(s.value_dim);
  for (int64_t h = 0; h < s.group(); h++)
    load_state(first == nullptr ? nullptr : first + h * stored, work.states + h * size, s);
  for (int64_t at = 0; at < run.tokens; at += kDeltaChunk) {
    const int64_t token = run.first + at, tokens = std::min(kDeltaChunk, run.tokens - at);
    const bool is_zero = at == 0 && first == nullptr, is_last = at + tokens == run.tokens;
    read_keys(in, work.keys, head, token, tokens);
    for (int64_t h = 0; h < s.group(); h++) {
      float* const state = work.states + h * size;
      if (at > 0 && at % kKeptTokens == 0) {
        float* const to = kept + (at / kKeptTokens - 1) * s.value_heads * stored + h * stored;
        store_rows(state, row, to, s.value_dim, s.key_dim, s.value_dim);
      }
      const int64_t value_head = head * s.group() + h;
      read_values(in, work.keys, work.values, value_head, token);
      read_state(work.keys, work.values, is_zero ? nullptr : state, /*with_queries=*/true);
      read_out(work.keys, work.values, work.out);
      store_rows(work.out, row, out + token * s.values() + value_head * s.value_dim, s.values(), tokens,
                 s.value_dim);
      if (!is_last || last != nullptr) write_state(work.keys, work.values, state);
    }
  }
  for (int64_t h = 0; h < s.group() && last != nullptr; h++)
    store_rows(work.states + h * size, row, last + h * stored, s.value_dim, s.key_dim, s.value_dim);
}

}  // namespace

DeltaResult gated_delta_cpu(const DeltaInputs& in, const DeltaShape& shape, const TokenRuns& runs,
                            bool wants_last_states) {
  const at::Tensor qkv = in.qkv.contiguous(), decay = in.decay.contiguous(), beta = in.beta.contiguous();
  const at::TensorOptions fp32 = decay.options();
  const auto count = static_cast<int64_t>(runs.size());
  const std::vector<int64_t> first_kept = kept_of_runs(runs);
  const std::vector<int64_t> state{shape.value_heads, shape.key_dim, shape.value_dim};
  const auto states = [&](int64_t n) { return at::empty({n, state[0], state[1], state[2]}, fp32); };
  DeltaResult result{
      zeros_in_padding(qkv.size(0), shape.values(), qkv.options(), runs), states(first_kept.back()), {}};
  if (wants_last_states) result.last_states = states(count);
  const at::Tensor memory = at::zeros({at::get_num_threads(), ForwardHead::floats(shape)}, fp32);
  if (qkv.is_meta()) return result;
  const at::Tensor begin = in.first_states.defined() ? in.first_states.contiguous() : at::Tensor();
  with_element_type(qkv, "gated_delta", [&]<class T>() {
    const DeltaPlaces<T> places{qkv.const_data_ptr<T>(), decay.const_data_ptr<float>(),
                                beta.const_data_ptr<float>(), shape};
    const int64_t all = shape.value_heads * shape.key_dim * shape.value_dim, of_key = all / shape.key_heads;
    T* const out = result.out.mutable_data_ptr<T>();
    float* const kept = result.kept_states.mutable_data_ptr<float>();
    const float* const first = begin.defined() ? begin.const_data_ptr<float>() : nullptr;
    float* const last = wants_last_states ? result.last_states.mutable_data_ptr<float>() : nullptr;
    for_runs_and_heads(runs, shape.key_heads, memory, [&](float* own, int64_t run, int64_t head) {
      const int64_t at = run * all + head * of_key;
      run_head(own, places, runs[static_cast<size_t>(run)], head, first == nullptr ? nullptr : first + at,
               out, kept + first_kept[static_cast<size_t>(run)] * all + head * of_key,
               last == nullptr ? nullptr : last + at);
    });
  });
  return result;
}

}  // namespace trainer
