// Decides which samples belong to a step, and how they are split into micro-batches. A run is a function of
// (data, seed, samples consumed), so resuming needs no stored sampler state and skips no samples.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/config/config.h"
#include "trainer/data/dataset.h"
#include "trainer/data/sample.h"

namespace trainer {

// The order of samples over all epochs: a permutation for each epoch, seeded by (seed, epoch). Without
// shuffling it is the order in the files.
class SampleOrder {
 public:
  SampleOrder(int64_t dataset_size, bool shuffle, int64_t seed);
  // Several sets, concatenated. An epoch takes each sample of a set as often as the weight of the set says.
  // For the fractional part of a weight, each epoch takes the next part of the set, in a separate order, so
  // that the whole set is seen before any sample repeats.
  SampleOrder(std::vector<SampleSet> sets, bool shuffle, int64_t seed);

  int64_t epoch_size() const { return size_; }       // in samples: the sum of weight x samples
  int64_t index_at(int64_t samples_consumed) const;  // dataset index of the next sample
  int64_t epoch_at(int64_t samples_consumed) const;

  // Returns the dataset indices of the step that starts at samples_consumed: effective_batch_size of them, or
  // fewer at the end of an epoch.
  std::vector<int64_t> step_at(int64_t samples_consumed, int64_t effective_batch_size) const;

 private:
  int64_t set_index(int64_t epoch, int64_t place) const;

  std::vector<SampleSet> sets_;
  int64_t size_;
  bool shuffle_;
  int64_t seed_;
};

// Returns the number of optimizer steps in one epoch: ceil(size / effective_batch_size).
int64_t steps_per_epoch(int64_t dataset_size, int64_t effective_batch_size);

// Reads and tokenizes these samples. Throws DataError as Dataset::sample() does.
EffectiveBatch load_effective_batch(const Dataset& dataset, const std::vector<int64_t>& indices);

// Returns the number of labels that count in the loss (decoders: labels[0] is never predicted).
int64_t supervised_tokens(const Sample& sample, bool encoder_decoder);
// Returns the sum of the weights of these labels: their number if all weights are 1.
double supervised_weight(const Sample& sample, bool encoder_decoder);

// Returns the number of tokens of a sample, source and target.
int64_t token_count(const Sample& sample, bool encoder_decoder);

// Returns how many tokens a sample takes in a packed row: of a decoder, or of the source. An empty sample
// takes one token of padding.
int64_t packed_tokens(const Sample& sample);
// The same of the target, which is empty for a decoder.
int64_t packed_target_tokens(const Sample& sample, bool encoder_decoder);

// The most tokens of a packed micro-batch; 0: it has no such limit.
struct PackedBudget {
  int64_t tokens = 0;         // encoder-decoders: of the sources
  int64_t target_tokens = 0;  // encoder-decoders only
};

struct CutLimits {
  MicroBatching by = MicroBatching::tokens;
  int64_t batch_size =
      8;  // by samples: rows of a micro-batch; by tokens: the budgets are batch_size x the two lengths
  int64_t max_source_length = 512;  // decoders: max_length
  int64_t max_target_length = 512;  // not used for decoders
  // The cost of a micro-batch besides its padded tokens, in tokens: small matrix products are slow, and
  // gradients are accumulated.
  int64_t overhead_tokens = 256;
  int64_t halvings = 0;  // times that rows and budgets are halved (recovery), down to single samples
  bool packing = false;  // a micro-batch is one row of samples, without padding
};

// Returns the token budgets of a packed micro-batch when splitting by tokens: batch_size x the two lengths,
// halved. Returns 0 when not packing, or when splitting by samples.
PackedBudget packed_budget(const CutLimits& limits, bool encoder_decoder);

// Splits this rank's share of the effective batch into micro-batches. Returns one vector of slots per
// micro-batch; each slot of the share occurs once. Samples of a group (Sample::group) go wherever they would
// as one sample that has the rows and tokens of all of them.
//
// samples: consecutive groups of batch_size. tokens: the samples are sorted by length (source, then target;
// longest first) and split so that padded tokens plus overhead are minimal. In each micro-batch, rows x
// longest source <= batch_size x max_source_length, and the same for targets; a single sample or group is
// always allowed. With packing: as few micro-batches as best fit decreasing finds, none with more tokens than
// packed_budget(), except a single sample or group.
std::vector<std::vector<int64_t>> cut(const EffectiveBatch& batch, const CutLimits& limits,
                                      bool encoder_decoder);

// Splits into micro-batches of the given numbers of samples (recorded in metrics.jsonl), in the order of
// cut(). `budget`: the packed_budget() that the original split used. Throws DataError when the numbers do not
// add up to the share, or when packing with the budget gives other numbers.
std::vector<std::vector<int64_t>> cut_as(const EffectiveBatch& batch, MicroBatching by,
                                         const std::vector<int64_t>& samples,
                                         const PackedBudget& budget = {});

// Returns whether these samples are more than one sample or group, so that a smaller split can part them.
bool can_be_split(const EffectiveBatch& batch, const std::vector<int64_t>& slots);

struct CollateOptions {
  bool encoder_decoder = true;
  int64_t pad_id = 0;
  int64_t decoder_start_id = 0;  // T5: pad
  bool packing = false;
  // Made of (seed, step): dropout masks follow from it, the sample's slot, the position and the layer.
  uint64_t random_key = 0;
  bool targets_are_sources = false;  // an encoder-decoder that scores a text reads it in its decoder, too
  // Returns whether one kernel there attends to all packed samples, so that they need no groups; empty: none.
  std::function<bool(at::Device device)> in_one_kernel = {};
  // Packed rows are lengthened so that they come in few forms, for recorded work. Padding and empty samples
  // stand behind the others, and labels of weight 0 behind the supervised ones. Not where there is a teacher.
  bool few_forms = false;
};

// Returns the tensors of the chosen slots on `device` (also meta: shapes without values), padded on the
// right, or packed in the order of `slots`.
MicroBatch collate(const EffectiveBatch& batch, const std::vector<int64_t>& slots,
                   const CollateOptions& options, at::Device device);

}  // namespace trainer
