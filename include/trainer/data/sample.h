// What the data layer hands on: samples, the effective batch of a step, the micro-batches it is cut into.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trainer {

inline constexpr int32_t kIgnore = -100;  // a label without supervision, as in Hugging Face

// seq2seq (encoder-decoder): input_ids is the source, labels the target. Decoders: labels has the length of
// input_ids; labels[i] is input_ids[i] where it is to be learnt, else kIgnore (predicted from position i - 1;
// labels[0] never is).
struct Sample {
  std::vector<int32_t> input_ids;
  std::vector<int32_t> labels;
};

// Which samples of each step this process computes: every `of`-th one, from `rank` on.
struct Share {
  int64_t rank = 0, of = 1;
};

// All samples of one optimizer step. A sample's slot is its place in here.
struct EffectiveBatch {
  std::vector<Sample> samples;
  int64_t supervised_tokens = 0;  // in all samples
  int64_t tokens = 0;             // not padding, source and target
  Share share = {};

  // Of this process's share, in order.
  std::vector<int64_t> own_slots() const;
};

// Where samples lie that share a row of tokens, one behind the other and nothing between them.
struct PackedRow {
  at::Tensor positions;  // [1, tokens] int64: inside the token's sample
  at::Tensor slots;      // [1, tokens] int64: of the token's sample
  at::Tensor starts;     // [samples + 1] int32: where each begins, and where the last ends ("cu_seqlens")
};

// Samples that go through the model together, right-padded to the longest; or packed: then `batch` is 1 for
// the tensors of tokens, and `seq` is the sum of the samples' lengths. Tensors on the device they were asked
// for.
struct MicroBatch {
  at::Tensor input_ids;          // [batch, seq] int64
  at::Tensor input_lengths;      // [samples] int64
  at::Tensor decoder_input_ids;  // [batch, target_seq] int64: labels shifted right; undefined for decoders
  at::Tensor supervised_rows;  // [n] int64: rows of the [batch * (target_)seq, hidden] states that predict a
                               // token to learn
  at::Tensor supervised_labels;  // [n] int64: those tokens
  at::Tensor slots;              // [samples] int64: dropout keys
  std::vector<int64_t> lengths;  // input_lengths on the host
  int64_t tokens = 0;            // not padding, source and target
  std::optional<PackedRow> packed;
};

}  // namespace trainer
