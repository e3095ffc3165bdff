// Which samples a step owns, and how they are cut into micro-batches. A run is a function of (data, seed,
// samples consumed): nothing is stored to continue, nothing is skipped.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/config/config.h"
#include "trainer/data/dataset.h"
#include "trainer/data/sample.h"

namespace trainer {

// The order of samples over all epochs: a permutation per epoch, seeded by (seed, epoch); file order with
// shuffle off.
class SampleOrder {
 public:
  SampleOrder(int64_t dataset_size, bool shuffle, int64_t seed);
  // Of several sets, one behind the other. An epoch takes each sample of a set as often as its weight says;
  // of the fraction of a weight, each epoch takes the next part of the set in an order of its own, so that
  // all of it is seen before anything is seen again.
  SampleOrder(std::vector<SampleSet> sets, bool shuffle, int64_t seed);

  int64_t epoch_size() const { return size_; }       // in samples: the sum of weight x samples
  int64_t index_at(int64_t samples_consumed) const;  // dataset index of the next sample
  int64_t epoch_at(int64_t samples_consumed) const;

  // The dataset indices of the step that starts there: effective_batch_size of them, fewer at the end of an
  // epoch.
  std::vector<int64_t> step_at(int64_t samples_consumed, int64_t effective_batch_size) const;

 private:
  int64_t set_index(int64_t epoch, int64_t place) const;

  std::vector<SampleSet> sets_;
  int64_t size_;
  bool shuffle_;
  int64_t seed_;
};

// Optimizer steps in one epoch: ceil(size / effective_batch_size).
int64_t steps_per_epoch(int64_t dataset_size, int64_t effective_batch_size);

EffectiveBatch load_effective_batch(const Dataset& dataset, const std::vector<int64_t>& indices);

// A sample's labels that count (decoders: labels[0] is never predicted).
int64_t supervised_tokens(const Sample& sample, bool encoder_decoder);

// A sample's tokens, source and target.
int64_t token_count(const Sample& sample, bool encoder_decoder);

// What a decoder's sample takes in a packed row: its tokens; an empty one is one token of padding.
int64_t packed_tokens(const Sample& sample);

struct CutLimits {
  MicroBatching by = MicroBatching::tokens;
  int64_t batch_size =
      8;  // samples: rows of a micro-batch; tokens: the budgets are batch_size x the two lengths
  int64_t max_source_length = 512;  // decoders: max_length
  int64_t max_target_length = 512;  // not used for decoders
  // What a micro-batch costs besides its padded tokens, in tokens: small products are slow, and gradients are
  // added.
  int64_t overhead_tokens = 256;
  int64_t halvings = 0;  // rows and budgets are halved so often (recovery); down to single samples
  bool packing = false;  // decoders: a micro-batch is one row of samples, without padding
};

// Of a packed micro-batch that is cut by tokens: batch_size x max_length, halved. 0: no other one is.
int64_t packed_budget(const CutLimits& limits);

// Slots of the effective batch's share, one vector a micro-batch; every slot of the share once.
// samples: plain consecutive groups of batch_size. tokens: ordered by length (source, then target; longest
// first) and cut so that padded tokens and overhead are least, with rows x longest source <= batch_size x
// max_source_length in each and the same for targets; one sample is always allowed. With packing, in as few
// micro-batches as best fit, the longest first, finds, none with more tokens than packed_budget().
std::vector<std::vector<int64_t>> cut(const EffectiveBatch& batch, const CutLimits& limits,
                                      bool encoder_decoder);

// The cut into micro-batches of these numbers of samples, in the order of cut(): what metrics.jsonl records.
// `budget`: the packed_budget() that it was made with. Throws DataError when the numbers are not as many as
// its share has, or not what the budget gives.
std::vector<std::vector<int64_t>> cut_as(const EffectiveBatch& batch, MicroBatching by,
                                         const std::vector<int64_t>& samples, int64_t budget = 0);

struct CollateOptions {
  bool encoder_decoder = true;
  int64_t pad_id = 0;
  int64_t decoder_start_id = 0;  // T5: pad
  bool packing = false;          // decoders only
};

// Tensors of the chosen slots on `device` (meta too: shapes without values), padded on the right, or packed
// in their order.
MicroBatch collate(const EffectiveBatch& batch, const std::vector<int64_t>& slots,
                   const CollateOptions& options, at::Device device);

}  // namespace trainer
