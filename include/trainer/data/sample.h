// The output of the data layer: samples, the effective batch of a step, and the micro-batches that it is
// split into.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trainer {

inline constexpr int32_t kIgnore = -100;  // a label without supervision, as in Hugging Face

// What a teacher says of the labels that count in the loss, in their order: of each its `top` likeliest
// tokens, and their log-probabilities (-inf: no token).
struct TeacherTokens {
  int64_t top = 0;  // 0: there is no teacher
  std::vector<int32_t> ids = {};
  std::vector<float> log_probs = {};
};

// seq2seq (encoder-decoder): input_ids is the source, labels the target. Decoders: labels is as long as
// input_ids; labels[i] is input_ids[i] when that token is supervised, else kIgnore (labels[i] is predicted
// from position i - 1; labels[0] never is).
//
// A sample that is scored as a whole has one label, a class or the bits of an fp32 number: a decoder's one
// place behind its ids, an encoder-decoder's at the last place of a target as long as the source.
struct Sample {
  std::vector<int32_t> input_ids;
  std::vector<int32_t> labels;
  // The weights of the labels in the loss; not used where there is no supervision. Empty: all are 1.
  std::vector<float> weights = {};
  // Samples of a step with the same number stay together: on one rank, and in one micro-batch. For objectives
  // that compare samples. Below 0: on its own.
  int64_t group = -1;
  bool desirable = true;  // the judgement of a row of feedback
  // The sum of the weighted log-probabilities of its labels under the reference, if that was computed before.
  std::optional<double> reference = std::nullopt;
  TeacherTokens teacher = {};
};

// The part of each step that this process computes: `rank` of `of` parts with about as many tokens each.
struct Share {
  int64_t rank = 0, of = 1;
};

// All samples of one optimizer step. The slot of a sample is its index in `samples`.
struct EffectiveBatch {
  std::vector<Sample> samples;
  int64_t supervised_tokens = 0;  // in all samples
  int64_t tokens = 0;             // not padding, source and target
  Share share = {};
  // The samples of each row: two where answers are compared. Side s of row r is in slot s * rows() + r.
  int64_t sides = 1;
  // For kto, by slot: the reference's log-probability of the prompt with the answer of the sample before it,
  // if it was computed before.
  std::vector<double> reference_of_others = {};

  int64_t rows() const { return static_cast<int64_t>(samples.size()) / sides; }

  // Returns the slots of this process's share, in ascending order. The longest sample, or group of samples,
  // goes first, each to the rank with the fewest tokens so far.
  std::vector<int64_t> own_slots() const;
};

// The layout of a packed row: samples one after another, with nothing between them.
struct PackedRow {
  at::Tensor positions;     // [1, tokens] int64: position of the token in its sample
  at::Tensor dropout_keys;  // [1, tokens] int64: of the token's sample
  at::Tensor starts;        // [samples + 1] int32: start of each sample, and end of the last ("cu_seqlens")
};

// Tokens of some packed samples, as rows of a padded [samples, length] layout.
struct PaddedRows {
  int64_t length = 0;
  at::Tensor rows;    // [n] int64: index of each token in the packed row
  at::Tensor places;  // [n] int64: index of each in [samples * length]; all others are padding
};

// Packed samples of similar lengths, whose attention is computed together.
struct AttentionGroup {
  int64_t samples = 0;
  PaddedRows queries, keys;  // in self-attention: the same
  at::Tensor key_lengths;    // [samples] int64
  at::Tensor dropout_keys;   // [samples] int64
};

// The tensors that only a packed micro-batch of an encoder-decoder has. The groups of each kind of attention
// have every sample once.
struct PackedTarget {
  PackedRow row;                                        // layout of decoder_input_ids
  std::vector<AttentionGroup> encoder, decoder, cross;  // empty where one kernel attends to all samples
};

// Samples that go through the model together. Padded on the right to the longest sample; or packed: then
// `batch` is 1 for the token tensors, and `seq` is the sum of the sample lengths. All tensors are on the
// requested device.
struct MicroBatch {
  at::Tensor input_ids;           // [batch, seq] int64
  at::Tensor input_lengths;       // [samples] int64
  at::Tensor decoder_input_ids;   // [batch, target_seq] int64: labels shifted right; undefined for decoders
  at::Tensor supervised_rows;     // [n] int64: rows of the [batch * (target_)seq, hidden] states that predict
                                  // a supervised token
  at::Tensor supervised_labels;   // [n] int64: those tokens
  at::Tensor supervised_weights;  // [n] fp32: their weights in the loss; undefined: all are 1
  at::Tensor teacher_ids;         // [n, top] int64: TeacherTokens of these tokens; undefined: no teacher
  at::Tensor teacher_log_probs;   // [n, top] fp32
  at::Tensor dropout_keys;        // [samples] int64: made of CollateOptions::random_key and the slots
  std::vector<int64_t> lengths;   // input_lengths on the host; few_forms: empty
  int64_t longest = 0;            // decoders, packed: no sample is longer
  int64_t tokens = 0;             // not padding, source and target
  std::optional<PackedRow> packed;
  std::optional<PackedTarget> packed_target;  // for an encoder-decoder
};

}  // namespace trainer
