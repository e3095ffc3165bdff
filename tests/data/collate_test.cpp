// The padded tensors of a micro-batch, compared with batches written by hand and with Hugging Face's
// collator.
#include <nlohmann/json.hpp>

#include "trainer/data/batching.h"

#include "base/random.h"
#include "data/fixture.h"
#include "data/upload.h"

namespace trainer {
namespace {

using Numbers = std::vector<int64_t>;

Numbers values(const at::Tensor& tensor) {
  EXPECT_EQ(tensor.scalar_type(), at::kLong);
  const at::Tensor flat = tensor.contiguous();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

Numbers keys_of(Numbers slots, uint64_t random_key = 0) {
  for (int64_t& slot : slots) slot = static_cast<int64_t>(derive(random_key, static_cast<uint64_t>(slot)));
  return slots;
}

EffectiveBatch t5_batch() { return {{{{4, 5, 1}, {6, 1}}, {{9, 1}, {7, 8, 1}}, {{1}, {kIgnore, 5}}}, 0, 0}; }

TEST(CollateTest, EncoderDecoder) {
  const MicroBatch batch = collate(t5_batch(), {2, 0, 1}, {true, 0, 50}, at::kCPU);
  EXPECT_EQ(batch.input_ids.sizes(), (at::IntArrayRef{3, 3}));
  EXPECT_EQ(values(batch.input_ids), (Numbers{1, 0, 0, 4, 5, 1, 9, 1, 0}));
  EXPECT_EQ(values(batch.input_lengths), (Numbers{1, 3, 2}));
  EXPECT_EQ(batch.lengths, (Numbers{1, 3, 2}));
  EXPECT_EQ(batch.decoder_input_ids.sizes(), (at::IntArrayRef{3, 3}));
  EXPECT_EQ(values(batch.decoder_input_ids), (Numbers{50, 0, 5, 50, 6, 1, 50, 7, 8}));
  EXPECT_EQ(values(batch.supervised_rows), (Numbers{1, 3, 4, 6, 7, 8}));
  EXPECT_EQ(values(batch.supervised_labels), (Numbers{5, 6, 1, 7, 8, 1}));
  EXPECT_EQ(values(batch.dropout_keys), keys_of({2, 0, 1}));
  EXPECT_EQ(batch.tokens, (1 + 2) + (3 + 2) + (2 + 3));
}

TEST(CollateTest, DropoutKeysOfAStepAreThoseOfItsRandomKeyAndSlots) {
  CollateOptions options{true, 0, 50};
  for (const bool packing : {false, true}) {
    options.packing = packing;
    options.random_key = 3;
    EXPECT_EQ(values(collate(t5_batch(), {2, 0}, options, at::kCPU).dropout_keys), keys_of({2, 0}, 3));
    EXPECT_NE(keys_of({2, 0}, 3), keys_of({2, 0}, 4));
  }
}

TEST(CollateTest, Decoder) {
  const EffectiveBatch samples{{{{3, 4, 5, 1}, {kIgnore, kIgnore, 5, 1}}, {{3, 7}, {3, 7}}}, 0, 0};
  const MicroBatch batch = collate(samples, {0, 1}, {false, 9, 0}, at::kCPU);
  EXPECT_EQ(values(batch.input_ids), (Numbers{3, 4, 5, 1, 3, 7, 9, 9}));
  EXPECT_EQ(batch.lengths, (Numbers{4, 2}));
  EXPECT_FALSE(batch.decoder_input_ids.defined());
  EXPECT_EQ(values(batch.supervised_rows), (Numbers{1, 2, 4}));
  EXPECT_EQ(values(batch.supervised_labels), (Numbers{5, 1, 7}));
  EXPECT_EQ(batch.tokens, 6);
}

std::vector<float> floats(const at::Tensor& tensor) {
  EXPECT_EQ(tensor.scalar_type(), at::kFloat);
  return {tensor.const_data_ptr<float>(), tensor.const_data_ptr<float>() + tensor.numel()};
}

// A sample without weights has those of one, beside others that have some.
TEST(CollateTest, WeightsAreThoseOfTheSupervisedTokens) {
  const EffectiveBatch samples{
      {{{3, 4, 5, 1}, {kIgnore, kIgnore, 5, 1}, {9, 9, 0.5, 0.25}}, {{3, 7}, {3, 7}}}, 0, 0};
  for (const bool packing : {false, true}) {
    const CollateOptions decoder{false, 9, 0, packing}, t5{true, 0, 50, packing};
    EXPECT_EQ(floats(collate(samples, {1, 0}, decoder, at::kCPU).supervised_weights),
              (std::vector<float>{1, 0.5, 0.25}));
    EXPECT_EQ(floats(collate(samples, {0, 1}, t5, at::kCPU).supervised_weights),
              (std::vector<float>{0.5, 0.25, 1, 1}));
    EXPECT_FALSE(collate(samples, {1}, decoder, at::kCPU).supervised_weights.defined());
  }
}

TEST(CollateTest, PackedSamplesShareARow) {
  const EffectiveBatch samples{
      {{{3, 4, 5, 1}, {kIgnore, kIgnore, 5, 1}}, {{3, 7}, {3, 7}}, {{}, {}}, {{8}, {8}}}, 0, 0};
  CollateOptions options{false, 9, 0};
  options.packing = true;
  const MicroBatch batch = collate(samples, {1, 0, 2, 3}, options, at::kCPU);
  EXPECT_EQ(batch.input_ids.sizes(), (at::IntArrayRef{1, 8}));
  EXPECT_EQ(values(batch.input_ids), (Numbers{3, 7, 3, 4, 5, 1, 9, 8}));
  EXPECT_EQ(batch.lengths, (Numbers{2, 4, 1, 1}));
  EXPECT_EQ(values(batch.dropout_keys), keys_of({1, 0, 2, 3}));
  // The last token of a sample predicts nothing, and the first is not predicted.
  EXPECT_EQ(values(batch.supervised_rows), (Numbers{0, 3, 4}));
  EXPECT_EQ(values(batch.supervised_labels), (Numbers{7, 5, 1}));
  EXPECT_EQ(batch.tokens, 7);
  ASSERT_TRUE(batch.packed);
  EXPECT_EQ(values(batch.packed->positions), (Numbers{0, 1, 0, 1, 2, 3, 0, 0}));
  EXPECT_EQ(values(batch.packed->dropout_keys), keys_of({1, 1, 0, 0, 0, 0, 2, 3}));
  EXPECT_EQ(batch.packed->starts.scalar_type(), at::kInt);
  EXPECT_EQ(values(batch.packed->starts.to(at::kLong)), (Numbers{0, 2, 6, 7, 8}));

  const MicroBatch meta = collate(samples, {1, 0, 2, 3}, options, at::kMeta);
  EXPECT_EQ(meta.input_ids.sizes(), batch.input_ids.sizes());
  EXPECT_EQ(meta.packed->starts.sizes(), batch.packed->starts.sizes());
  EXPECT_TRUE(meta.packed->positions.is_meta() && meta.packed->dropout_keys.is_meta());
}

TEST(CollateTest, PackedPairsShareARowOfSourcesAndOneOfTargets) {
  const EffectiveBatch samples{{{{3, 4, 1}, {5, kIgnore, 1}}, {{7, 1}, {6, 1}}, {{}, {}}}, 0, 0};
  CollateOptions options{true, 9, 50};
  options.packing = true;
  const MicroBatch batch = collate(samples, {1, 2, 0}, options, at::kCPU);
  EXPECT_EQ(values(batch.input_ids), (Numbers{7, 1, 9, 3, 4, 1}));
  EXPECT_EQ(values(batch.decoder_input_ids), (Numbers{50, 6, 50, 50, 5, 9}));
  EXPECT_EQ(batch.decoder_input_ids.sizes(), (at::IntArrayRef{1, 6}));
  EXPECT_EQ(values(batch.supervised_rows), (Numbers{0, 1, 3, 5}));
  EXPECT_EQ(values(batch.supervised_labels), (Numbers{6, 1, 5, 1}));
  EXPECT_EQ(batch.lengths, (Numbers{2, 1, 3}));
  EXPECT_EQ(batch.tokens, 5 + 5);
  ASSERT_TRUE(batch.packed && batch.packed_target);
  EXPECT_EQ(values(batch.packed->positions), (Numbers{0, 1, 0, 0, 1, 2}));
  EXPECT_EQ(values(batch.packed_target->row.positions), (Numbers{0, 1, 0, 0, 1, 2}));
  EXPECT_EQ(values(batch.packed_target->row.dropout_keys), keys_of({1, 1, 2, 0, 0, 0}));
  // So few tokens attend in one group.
  for (const auto* groups : {&batch.packed_target->encoder, &batch.packed_target->cross}) {
    ASSERT_EQ(groups->size(), 1u);
    const AttentionGroup& group = groups->front();
    EXPECT_EQ(group.samples, 3);
    EXPECT_EQ(group.keys.length, 3);
    EXPECT_EQ(values(group.keys.rows), (Numbers{0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(values(group.keys.places), (Numbers{0, 1, 3, 6, 7, 8}));
    EXPECT_EQ(values(group.key_lengths), (Numbers{2, 1, 3}));
    EXPECT_EQ(values(group.dropout_keys), keys_of({1, 2, 0}));
  }
}

TEST(CollateTest, BuildsNoGroupsWhereOneKernelAttendsToAllSamples) {
  const EffectiveBatch samples{{{{3, 4, 1}, {5, 1}}, {{7, 1}, {6, 1}}}, 0, 0};
  CollateOptions options{true, 9, 50};
  options.packing = true;
  options.in_one_kernel = [](at::Device device) { return device.is_meta(); };
  for (const at::Device device : {at::kCPU, at::kMeta}) {
    const PackedTarget target = *collate(samples, {0, 1}, options, device).packed_target;
    for (const auto* groups : {&target.encoder, &target.decoder, &target.cross})
      EXPECT_EQ(groups->empty(), device.is_meta());
  }
}

// Short and long ones apart, and a group of long ones no larger than its memory allows.
TEST(CollateTest, EverySampleAttendsInOneGroupOfLikeLengths) {
  EffectiveBatch batch;
  std::vector<int64_t> slots;
  for (int64_t i = 0; i < 60; i++) {
    const size_t source = i % 10 == 0 ? 600 : 1 + static_cast<size_t>(i * 7 % 13);
    batch.samples.push_back(
        {std::vector<int32_t>(source, 5), std::vector<int32_t>(1 + static_cast<size_t>(i * 5 % 40), 6)});
    slots.push_back(i);
  }
  CollateOptions options{true, 0, 0};
  options.packing = true;
  const MicroBatch micro = collate(batch, slots, options, at::kCPU);
  for (const auto* groups :
       {&micro.packed_target->encoder, &micro.packed_target->decoder, &micro.packed_target->cross}) {
    Numbers seen, query_rows;
    int64_t pairs = 0;
    for (const AttentionGroup& group : *groups) {
      for (const int64_t key : values(group.dropout_keys)) seen.push_back(key);
      for (const int64_t row : values(group.queries.rows)) query_rows.push_back(row);
      EXPECT_LE(group.samples * group.queries.length * group.keys.length, 1 << 20);
      pairs += group.samples * group.queries.length * group.keys.length;
    }
    EXPECT_TRUE(std::ranges::is_permutation(seen, keys_of(slots)));
    std::ranges::sort(query_rows);
    EXPECT_EQ(std::ssize(query_rows), query_rows.back() + 1) << "each query once";
    EXPECT_LT(groups->size(), 12u);
    EXPECT_LT(pairs, 3'000'000) << "in one group: 60 x 600 x 600 = 21,600,000";
  }
}

TEST(CollateTest, MetaHasTheSameShapes) {
  const MicroBatch real = collate(t5_batch(), {0, 1}, {true, 0, 0}, at::kCPU);
  const MicroBatch meta = collate(t5_batch(), {0, 1}, {true, 0, 0}, at::kMeta);
  for (const auto& tensor :
       {&MicroBatch::input_ids, &MicroBatch::input_lengths, &MicroBatch::decoder_input_ids,
        &MicroBatch::supervised_rows, &MicroBatch::supervised_labels, &MicroBatch::dropout_keys}) {
    EXPECT_TRUE((meta.*tensor).is_meta());
    EXPECT_EQ((meta.*tensor).sizes(), (real.*tensor).sizes());
  }
  EXPECT_EQ(meta.lengths, real.lengths);
}

TEST(CollateTest, EmptySamplesAndNoSupervisionAreHarmless) {
  const MicroBatch batch = collate({{{{}, {}}, {{4}, {kIgnore}}}, 0, 0}, {0, 1}, {false, 9, 0}, at::kCPU);
  EXPECT_EQ(values(batch.input_ids), (Numbers{9, 4}));
  EXPECT_EQ(batch.lengths, (Numbers{1, 1}));
  EXPECT_EQ(batch.supervised_rows.numel(), 0);
  EXPECT_EQ(batch.supervised_labels.scalar_type(), at::kLong);
}

using CollateDataTest = DataTest;

// From ids to the padded batch, as in DataCollatorForSeq2Seq with prepare_decoder_input_ids_from_labels.
TEST_F(CollateDataTest, BatchAsHuggingFaces) {
  const auto golden =
      nlohmann::json::parse(std::ifstream(SOURCE_DIR "/tests/goldens/data/seq2seq.json"))["batch"];
  config_.data.max_source_length = golden["max_source_length"];
  config_.data.max_target_length = golden["max_target_length"];
  const Dataset set = data(
      "{\"input\": \"one two three four five\", \"target\": \"six\"}\n"
      "{\"input\": \"two\", \"target\": \"one two three four\"}\n"
      "{\"input\": \"\", \"target\": \"three two\"}\n");
  const MicroBatch batch = collate(load_effective_batch(set, {0, 1, 2}), {0, 1, 2}, {true, 0, 0}, at::kCPU);
  const auto flat = [&](const char* name) {
    Numbers all;
    for (const auto& row : golden[name]) {
      for (const int64_t value : row) all.push_back(value);
    }
    return all;
  };
  EXPECT_EQ(values(batch.input_ids), flat("input_ids"));
  EXPECT_EQ(values(batch.decoder_input_ids), flat("decoder_input_ids"));
  Numbers labels(flat("labels").size(), kIgnore);
  const Numbers rows = values(batch.supervised_rows), wanted = values(batch.supervised_labels);
  for (size_t i = 0; i < rows.size(); i++) labels[static_cast<size_t>(rows[i])] = wanted[i];
  EXPECT_EQ(labels, flat("labels"));
  for (size_t row = 0; row < 3; row++) {
    int64_t length = 0;
    for (const int64_t value : golden["attention_mask"][row]) length += value;
    EXPECT_EQ(batch.lengths[row], length);
  }
}

TEST(EmptyForUpload, GoesOnInOrdinaryMemoryWhereNoneCanBeLocked) {
  std::atomic<bool> refused = false;
  int asked = 0;
  const auto allocate = [&](bool locked) {
    if (locked) {
      asked++;
      throw c10::AcceleratorError({"", "", 0}, 2, "CUDA error: out of memory");  // the error of cudaHostAlloc
    }
    return at::zeros({3});
  };
  for (int i = 0; i < 2; i++) EXPECT_EQ(page_locked_if_possible(allocate, refused).numel(), 3);
  EXPECT_EQ(asked, 1) << "and is not asked again";
  refused = false;
  EXPECT_THROW(
      page_locked_if_possible([](bool) -> at::Tensor { TORCH_CHECK(false, "another error"); }, refused),
      c10::Error);
  EXPECT_FALSE(refused);
}

}  // namespace
}  // namespace trainer
