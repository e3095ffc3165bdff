// Packed rows whose forms are few (data/few_forms.h).
#include "data/few_forms.h"

#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include "trainer/data/batching.h"

namespace trainer {
namespace {

using Numbers = std::vector<int64_t>;

Numbers values(const at::Tensor& tensor) {
  const at::Tensor wide = tensor.to(at::kLong).contiguous().view(-1);
  return {wide.const_data_ptr<int64_t>(), wide.const_data_ptr<int64_t>() + wide.numel()};
}

CollateOptions options_of(bool encoder_decoder) {
  CollateOptions options{encoder_decoder, 9, 50};
  options.packing = options.few_forms = true;
  options.in_one_kernel = [](at::Device) { return true; };
  return options;
}

MicroBatch collated(const std::vector<Sample>& samples, bool encoder_decoder) {
  Numbers slots(samples.size());
  std::iota(slots.begin(), slots.end(), 0);
  return collate({samples, 0, 0}, slots, options_of(encoder_decoder), at::kCPU);
}

Sample of_lengths(size_t source, size_t target) {
  return {std::vector<int32_t>(source, 3), std::vector<int32_t>(target, 4)};
}

TEST(FewForms, SizesAreFewAndNoMoreThanAPartIsAdded) {
  for (const int64_t parts : {1, 4, 8}) {
    std::set<int64_t> sizes;
    for (int64_t n = 0; n <= 4096; n++) {
      const int64_t size = one_of_few_sizes(n, parts);
      EXPECT_GE(size, n);
      EXPECT_LE((size - n) * parts, n) << n << " of " << parts;
      EXPECT_EQ(one_of_few_sizes(size, parts), size);
      sizes.insert(size);
    }
    EXPECT_LE(std::ssize(sizes), 13 * parts + 1);
  }
}

// What a decoder reads: each sample as it was, then one of padding, and empty ones.
TEST(FewForms, PaddingStandsBehindTheSamplesOfADecoder) {
  const MicroBatch batch = collated({{{1, 2, 3}, {1, 2, 3}}, of_lengths(15, 15)}, false);
  EXPECT_EQ(batch.input_ids.sizes(), (at::IntArrayRef{1, 18}));
  EXPECT_EQ(values(batch.packed->starts), (Numbers{0, 3, 18}));
  const MicroBatch padded = collated({{{1, 2, 3}, {1, 2, 3}}, of_lengths(16, 3), of_lengths(2, 2)}, false);
  EXPECT_EQ(values(padded.packed->starts), (Numbers{0, 3, 19, 21, 22}));
  EXPECT_EQ(values(padded.input_ids)[21], 9);
  EXPECT_EQ(values(padded.packed->positions)[21], 0);
  EXPECT_EQ(padded.input_lengths.numel(), 4);
  EXPECT_EQ(padded.dropout_keys.numel(), 4);
  EXPECT_TRUE(padded.lengths.empty());
  EXPECT_EQ(padded.longest, 16);
  EXPECT_EQ(padded.tokens, 21);
}

TEST(FewForms, LabelsOfPaddingHaveNoWeightAndRowsOfTheirOwn) {
  std::vector<Sample> samples(3, of_lengths(12, 12));  // 33 labels
  samples[1].weights.assign(12, 0.5f);
  const MicroBatch batch = collated(samples, false);
  const Numbers rows = values(batch.supervised_rows);
  ASSERT_EQ(rows.size(), 36u);
  EXPECT_EQ(batch.supervised_labels.numel(), 36);
  const at::Tensor weights = batch.supervised_weights;
  EXPECT_EQ(weights.narrow(0, 0, 33).sum().item<float>(), 11 * 2.5f);
  EXPECT_EQ(weights.narrow(0, 33, 3).count_nonzero().item<int64_t>(), 0);
  const std::set<int64_t> supervised(rows.begin(), rows.begin() + 33);
  EXPECT_EQ(supervised.size(), 33u);
  EXPECT_EQ(std::set<int64_t>(rows.begin(), rows.end()).size(), 36u) << "a row for each";
}

// A GPU adds the gradients of equal rows one after another.
TEST(FewForms, NoLabelOfPaddingHasTheRowOfAnother) {
  for (size_t length = 1; length < 200; length++) {
    const MicroBatch batch = collated({of_lengths(5, length)}, true);
    const Numbers rows = values(batch.supervised_rows);
    EXPECT_LE(std::ssize(rows), batch.decoder_input_ids.numel());
    EXPECT_EQ(std::set<int64_t>(rows.begin(), rows.end()).size(), rows.size()) << length;
    EXPECT_LT(std::ranges::max(rows), batch.decoder_input_ids.numel());
  }
}

// A long sample would take a GPU longer than many short ones.
TEST(FewForms, PaddingIsNoLongerThanTheLongestSample) {
  std::vector<Sample> samples(101, of_lengths(20, 20));
  for (const bool encoder_decoder : {false, true}) {
    const MicroBatch batch = collated(samples, encoder_decoder);
    const Numbers starts = values(batch.packed->starts);
    for (size_t i = 0; i + 1 < starts.size(); i++) EXPECT_LE(starts[i + 1] - starts[i], 20);
    EXPECT_EQ(starts.back(), 2048);
    EXPECT_EQ(starts.size(), 113u);  // 101, two of padding, and empty ones
    EXPECT_EQ(batch.longest, encoder_decoder ? 0 : 32);
  }
}

TEST(FewForms, ATeacherHasRowsOfItsOwn) {
  std::vector<Sample> samples(3, of_lengths(12, 12));
  for (Sample& sample : samples)
    sample.teacher = {1, std::vector<int32_t>(11, 5), std::vector<float>(11, 0.0f)};
  EXPECT_EQ(collated(samples, false).lengths, (Numbers{12, 12, 12}));
}

// Sources and targets of a sample have one number.
TEST(FewForms, SourcesAndTargetsHaveTheSameSamples) {
  const MicroBatch batch = collated({of_lengths(9, 21), of_lengths(7, 12)}, true);  // 16 and 33 tokens
  EXPECT_EQ(values(batch.packed->starts), (Numbers{0, 9, 16, 16}));
  EXPECT_EQ(values(batch.packed_target->row.starts), (Numbers{0, 21, 33, 36}));
  EXPECT_TRUE(batch.packed_target->encoder.empty());
}

// What a recording depends on.
std::vector<Numbers> form_of(const MicroBatch& batch) {
  std::vector<Numbers> form{{batch.longest, std::ssize(batch.lengths)}};
  for (const at::Tensor& x : {batch.input_ids, batch.input_lengths, batch.supervised_rows, batch.dropout_keys,
                              batch.packed->starts, batch.supervised_weights})
    form.push_back(x.sizes().vec());
  return form;
}

TEST(FewForms, RowsOfAboutAsManyTokensAndSamplesHaveOneForm) {
  std::set<std::vector<Numbers>> forms;
  for (size_t i = 0; i < 200; i++) {
    std::vector<Sample> samples;
    for (size_t sample = 0; sample < 13; sample++) {
      const size_t tokens = 138 + (i * 37 + sample * 53) % 30;
      samples.push_back(of_lengths(tokens, tokens));
    }
    forms.insert(form_of(collated(samples, false)));
  }
  EXPECT_EQ(forms.size(), 1u);
}

// They are attended to as padded rows, which is faster.
TEST(FewForms, RowsOfOneLengthStayWhereItIsRoundButForTheirLabels) {
  const MicroBatch batch = collated(std::vector<Sample>(3, of_lengths(256, 256)), false);
  EXPECT_EQ(batch.lengths, (Numbers{256, 256, 256}));
  EXPECT_EQ(batch.supervised_rows.numel(), 768);
  EXPECT_TRUE(collated(std::vector<Sample>(3, of_lengths(250, 250)), false).lengths.empty());
}

}  // namespace
}  // namespace trainer
