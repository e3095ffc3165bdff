// Chosen samples of an effective batch -> padded or packed tensors. Everything is laid out on the host first,
// so that no value is read back from the device.
#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>

#include <ATen/ATen.h>

#include "trainer/data/batching.h"

#include "base/random.h"
#include "data/attention_groups.h"
#include "data/few_forms.h"
#include "data/upload.h"

namespace trainer {
namespace {

// A matrix of ids in host memory, filled with `fill`.
class HostMatrix {
 public:
  HostMatrix(int64_t rows, int64_t columns, int64_t fill, at::Device device)
      : tensor_(empty_for_upload({rows, columns}, at::kLong, device).fill_(fill)),
        data_(tensor_.mutable_data_ptr<int64_t>()),
        columns_(columns) {}
  // A pointer, because a matrix without elements has no first one.
  int64_t* at(int64_t row, int64_t column) { return data_ + row * columns_ + column; }
  const at::Tensor& tensor() const { return tensor_; }

 private:
  at::Tensor tensor_;
  int64_t* data_;
  int64_t columns_;
};

// Rows of the hidden states that predict a supervised token, these tokens, and their weights in the loss.
struct Supervision {
  std::vector<int64_t> rows, labels;
  std::vector<float> weights;
  bool weighted = false;  // some weights are not 1
  TeacherTokens teacher;  // of all of them
};

// Samples may have different numbers of tokens of a teacher: those that are missing stand for the first one.
void add_teacher(TeacherTokens& all, const TeacherTokens& more, int64_t most) {
  all.top = most;
  if (more.top == most) {
    all.ids.insert(all.ids.end(), more.ids.begin(), more.ids.end());
    all.log_probs.insert(all.log_probs.end(), more.log_probs.begin(), more.log_probs.end());
    return;
  }
  const auto top = static_cast<size_t>(more.top);
  for (size_t at = 0; top > 0 && at < more.ids.size(); at += top) {
    all.ids.insert(all.ids.end(), more.ids.begin() + at, more.ids.begin() + at + top);
    all.ids.insert(all.ids.end(), static_cast<size_t>(most) - top, more.ids[at]);
    all.log_probs.insert(all.log_probs.end(), more.log_probs.begin() + at, more.log_probs.begin() + at + top);
    all.log_probs.insert(all.log_probs.end(), static_cast<size_t>(most) - top,
                         -std::numeric_limits<float>::infinity());
  }
}

void add_teachers(Supervision& supervision, const EffectiveBatch& batch, const std::vector<int64_t>& slots) {
  int64_t most = 0;
  for (const int64_t slot : slots)
    most = std::max(most, batch.samples[static_cast<size_t>(slot)].teacher.top);
  for (const int64_t slot : slots) {
    if (most > 0) add_teacher(supervision.teacher, batch.samples[static_cast<size_t>(slot)].teacher, most);
  }
}

// Decoders: the state at i - 1 predicts token i, so `lookahead` is 1. T5's decoder gets labels that are
// already shifted.
void add_supervision(Supervision& supervision, const Sample& sample, int64_t first_row, int64_t lookahead) {
  const bool weighted = !sample.weights.empty();
  supervision.weighted |= weighted;
  for (int64_t i = lookahead; i < std::ssize(sample.labels); i++) {
    const auto at = static_cast<size_t>(i);
    if (sample.labels[at] == kIgnore) continue;
    supervision.rows.push_back(first_row + i - lookahead);
    supervision.labels.push_back(sample.labels[at]);
    supervision.weights.push_back(weighted ? sample.weights[at] : 1.0f);
  }
}

std::vector<int64_t> dropout_keys_of(const std::vector<int64_t>& slots, uint64_t random_key) {
  std::vector<int64_t> keys;
  for (const int64_t slot : slots)
    keys.push_back(static_cast<int64_t>(derive(random_key, static_cast<uint64_t>(slot))));
  return keys;
}

// The part that packed and padded batches have in common.
void add_vectors(MicroBatch& result, const Supervision& supervision, const std::vector<int64_t>& dropout_keys,
                 Upload& upload, at::Device device) {
  result.input_lengths = upload(host_vector(result.lengths, device));
  result.supervised_rows = upload(host_vector(supervision.rows, device));
  result.supervised_labels = upload(host_vector(supervision.labels, device));
  if (supervision.weighted) result.supervised_weights = upload(host_vector(supervision.weights, device));
  result.dropout_keys = upload(host_vector(dropout_keys, device));
  const TeacherTokens& teacher = supervision.teacher;
  if (teacher.top == 0) return;
  const std::vector<int64_t> ids(teacher.ids.begin(), teacher.ids.end());
  const int64_t rows = std::ssize(supervision.labels);
  TORCH_CHECK(std::ssize(ids) == rows * teacher.top, "collate: a teacher of ", ids.size(), " tokens for ",
              rows, " labels, each with ", teacher.top);
  result.teacher_ids = upload(host_vector(ids, device)).view({rows, teacher.top});
  result.teacher_log_probs = upload(host_vector(teacher.log_probs, device)).view({rows, teacher.top});
}

// A row of samples that lie one after another.
struct HostRow {
  HostRow(const std::vector<int64_t>& lengths, const std::vector<int64_t>& dropout_keys, int64_t fill,
          at::Device device)
      : starts(starts_of(lengths)),
        ids(1, starts.back(), fill, device),
        positions(1, starts.back(), 0, device),
        token_keys(1, starts.back(), 0, device) {
    for (size_t i = 0; i < lengths.size(); i++) {
      const int64_t begin = starts[i], length = lengths[i];
      std::iota(positions.at(0, begin), positions.at(0, begin) + length, 0);
      std::fill_n(token_keys.at(0, begin), length, dropout_keys[i]);
    }
  }
  static std::vector<int32_t> starts_of(const std::vector<int64_t>& lengths) {
    std::vector<int32_t> starts{0};
    for (const int64_t length : lengths) starts.push_back(starts.back() + static_cast<int32_t>(length));
    return starts;
  }
  PackedRow layout(Upload& upload, at::Device device) const {
    return {upload(positions.tensor()), upload(token_keys.tensor()), upload(host_vector(starts, device))};
  }

  std::vector<int32_t> starts;
  HostMatrix ids, positions, token_keys;
};

// Writes T5's decoder input: the start token, then the labels but the last. `to` has at least one place.
void shift_right(const std::vector<int32_t>& labels, int64_t* to, int64_t places,
                 const CollateOptions& options) {
  to[0] = options.decoder_start_id;
  for (int64_t i = 1; i < places && i <= static_cast<int64_t>(labels.size()); i++) {
    const int32_t label = labels[static_cast<size_t>(i - 1)];
    to[i] = label == kIgnore ? options.pad_id : label;
  }
}

// Returns the ids that an encoder-decoder's decoder reads, shifted.
const std::vector<int32_t>& target_of(const Sample& sample, const CollateOptions& options) {
  return options.targets_are_sources ? sample.input_ids : sample.labels;
}

// Adds labels that count nothing, at rows without supervision, so that there are one of few numbers of them.
void add_padding_labels(Supervision& supervision, int64_t tokens) {
  add_padding_rows(supervision.rows, tokens);
  supervision.labels.resize(supervision.rows.size());
  supervision.weights.resize(supervision.rows.size());
  supervision.weighted = true;
}

// Rows of one length that is a multiple of 256 are few forms anyway, and padded rows to a kernel.
bool has_few_forms(const std::vector<int64_t>& lengths) {
  const int64_t length = lengths[0], tokens = length * std::ssize(lengths);
  return length % 256 == 0 && size_of_row(tokens) == tokens &&
         std::ranges::all_of(lengths, [&](int64_t other) { return other == length; });
}

// Packs the samples into one row, one after another; for an encoder-decoder into one of sources and one of
// targets.
MicroBatch collate_packed(const EffectiveBatch& batch, const std::vector<int64_t>& slots,
                          const CollateOptions& options, at::Device device) {
  MicroBatch result;
  std::vector<int64_t> target_lengths;
  for (const int64_t slot : slots) {
    const Sample& sample = batch.samples[static_cast<size_t>(slot)];
    result.lengths.push_back(packed_tokens(sample));
    target_lengths.push_back(packed_target_tokens(sample, options.encoder_decoder));
    result.tokens += token_count(sample, options.encoder_decoder);
  }
  const bool few_forms = options.few_forms && std::ranges::none_of(slots, [&](int64_t slot) {
                           return batch.samples[static_cast<size_t>(slot)].teacher.top > 0;
                         });
  const bool padded = few_forms && (options.encoder_decoder || !has_few_forms(result.lengths));
  if (padded) add_padding_samples(result.lengths, target_lengths);
  std::vector<int64_t> dropout_keys = dropout_keys_of(slots, options.random_key);
  dropout_keys.resize(result.lengths.size());
  HostRow inputs(result.lengths, dropout_keys, options.pad_id, device),
      targets(target_lengths, dropout_keys, options.pad_id, device);
  Supervision supervision;
  for (size_t i = 0; i < slots.size(); i++) {
    const Sample& sample = batch.samples[static_cast<size_t>(slots[i])];
    std::copy(sample.input_ids.begin(), sample.input_ids.end(), inputs.ids.at(0, inputs.starts[i]));
    if (options.encoder_decoder) {
      add_supervision(supervision, sample, targets.starts[i], 0);
      shift_right(target_of(sample, options), targets.ids.at(0, targets.starts[i]), target_lengths[i],
                  options);
    } else {
      add_supervision(supervision, sample, inputs.starts[i], 1);
    }
  }
  Upload upload(device);
  result.input_ids = upload(inputs.ids.tensor());
  result.packed = inputs.layout(upload, device);
  if (options.encoder_decoder) {
    result.decoder_input_ids = upload(targets.ids.tensor());
    const bool one_kernel = options.in_one_kernel && options.in_one_kernel(device);
    const auto groups = [&](const std::vector<int64_t>& queries, const std::vector<int64_t>& keys) {
      if (one_kernel) return std::vector<AttentionGroup>();
      return attention_groups(queries, keys, dropout_keys, upload, device);
    };
    result.packed_target = {targets.layout(upload, device), groups(result.lengths, result.lengths),
                            groups(target_lengths, target_lengths), groups(target_lengths, result.lengths)};
  }
  if (few_forms) add_padding_labels(supervision, (options.encoder_decoder ? targets : inputs).starts.back());
  add_teachers(supervision, batch, slots);
  add_vectors(result, supervision, dropout_keys, upload, device);
  if (!options.encoder_decoder) result.longest = std::ranges::max(result.lengths);
  if (padded) {
    result.longest = std::min<int64_t>(one_of_few_sizes(result.longest, 1), inputs.starts.back());
    result.lengths.clear();
  }
  upload.wait();
  return result;
}

}  // namespace

MicroBatch collate(const EffectiveBatch& batch, const std::vector<int64_t>& slots,
                   const CollateOptions& options, at::Device device) {
  if (options.packing) return collate_packed(batch, slots, options, device);
  const auto rows = static_cast<int64_t>(slots.size());
  const auto sample_of = [&](int64_t row) -> const Sample& {
    return batch.samples[static_cast<size_t>(slots[static_cast<size_t>(row)])];
  };
  int64_t source_length = 1, target_length = 1;
  for (int64_t row = 0; row < rows; row++) {
    source_length = std::max(source_length, static_cast<int64_t>(sample_of(row).input_ids.size()));
    target_length = std::max(target_length, static_cast<int64_t>(sample_of(row).labels.size()));
  }

  MicroBatch result;
  Supervision supervision;
  HostMatrix inputs(rows, source_length, options.pad_id, device);
  HostMatrix decoder_inputs(options.encoder_decoder ? rows : 0, target_length, options.pad_id, device);
  for (int64_t row = 0; row < rows; row++) {
    const Sample& sample = sample_of(row);
    const auto length = static_cast<int64_t>(sample.input_ids.size());
    if (length > 0) std::copy(sample.input_ids.begin(), sample.input_ids.end(), inputs.at(row, 0));
    // An empty input is one token of padding: attention over nothing has no value.
    result.lengths.push_back(std::max<int64_t>(length, 1));
    result.tokens += token_count(sample, options.encoder_decoder);
    if (!options.encoder_decoder) {
      add_supervision(supervision, sample, row * source_length, 1);
      continue;
    }
    add_supervision(supervision, sample, row * target_length, 0);
    shift_right(target_of(sample, options), decoder_inputs.at(row, 0), target_length, options);
  }
  Upload upload(device);
  result.input_ids = upload(inputs.tensor());
  if (options.encoder_decoder) result.decoder_input_ids = upload(decoder_inputs.tensor());
  add_teachers(supervision, batch, slots);
  add_vectors(result, supervision, dropout_keys_of(slots, options.random_key), upload, device);
  upload.wait();
  return result;
}

}  // namespace trainer
