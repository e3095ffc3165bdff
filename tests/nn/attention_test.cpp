// The recomputing attention compared with plain autograd, and T5's buckets compared with transformers.
#include "nn/attention.h"

#include <algorithm>
#include <fstream>
#include <numeric>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "data/attention_groups.h"
#include "data/upload.h"
#include "ops/cpu_products_are.h"
#include "ops/dropout.h"
#include "support/reference.h"

namespace trainer {
namespace {

TEST(RelativeBias, BucketsAgreeWithTransformers) {
  std::ifstream in(SOURCE_DIR "/tests/goldens/t5_buckets.json");
  for (const auto& golden : nlohmann::json::parse(in)) {
    const auto expected = golden["buckets"].get<std::vector<int64_t>>();
    const int64_t first = golden["first"], count = static_cast<int64_t>(expected.size());
    const RelativeBias bias(golden["num_buckets"], golden["max_distance"], 1, golden["bidirectional"]);
    // one query at position -first sees the distances from `first` on
    const at::Tensor ours = bias.buckets(1, count, -first, at::kCPU);
    EXPECT_TRUE(ours.equal(at::tensor(expected))) << golden["bidirectional"] << " " << golden["num_buckets"];
  }
}

struct Case {
  at::Tensor q, k, v, table;
  BiasAndDropout extra;
  AttentionInputs inputs;
};

// Whether it is causal, the dropout, and the queries. 110 are a block and some more.
using Kind = std::tuple<bool, double, int64_t>;

// The same numbers in either type.
Case make_case(const Kind& kind, at::ScalarType type) {
  const auto [causal, p, queries] = kind;
  constexpr int64_t batch = 3, heads = 6, head_dim = 12;
  const int64_t keys = causal ? queries : queries + 2;
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(1);
  const auto random = [&](at::IntArrayRef shape) {
    return at::randn(shape, generator, at::kFloat).to(type).set_requires_grad(true);
  };
  Case c{random({batch, heads, queries, head_dim}),
         random({batch, heads, keys, head_dim}),
         random({batch, heads, keys, head_dim}),
         random({8, heads}),
         {},
         {}};
  c.extra.bias_weight = c.table;
  c.extra.bias_buckets = RelativeBias(8, 16, heads, !causal).buckets(queries, keys, keys - queries, at::kCPU);
  if (!causal) c.extra.key_lengths = at::tensor(std::vector<int64_t>{keys, 4, 1});
  c.extra.row_keys = row_keys(at::arange(batch), queries);
  c.extra.key = 77;
  c.extra.p = p;
  c.inputs = {c.q, c.k, c.v, 0.5, causal, {}};
  return c;
}

// The same with every matrix kept, by plain autograd in fp64.
at::Tensor reference(const Case& c) {
  const int64_t queries = c.q.size(2), keys = c.k.size(2), heads = c.q.size(1);
  at::Tensor scores = at::matmul(c.q, c.k.transpose(2, 3)) * c.inputs.scale;
  const at::Tensor distance = at::arange(keys).unsqueeze(0) - at::arange(queries).unsqueeze(1) + queries - 1;
  scores = scores + c.table.index({c.extra.bias_buckets.index({distance})}).permute({2, 0, 1});
  if (c.extra.key_lengths.defined()) {
    scores = scores.masked_fill(at::arange(keys).ge(c.extra.key_lengths.view({-1, 1, 1, 1})), -INFINITY);
  }
  if (c.inputs.causal) scores = scores.masked_fill(at::ones({queries, keys}, at::kBool).triu(1), -INFINITY);
  at::Tensor weights = at::softmax(scores, -1);
  if (c.extra.p > 0) {
    const at::Tensor head_keys = at::arange(heads).mul(int64_t{1} << 24).view({1, -1, 1});
    const at::Tensor keys_of_rows = (c.extra.row_keys.unsqueeze(1) + head_keys).reshape({-1});
    weights = dropout(weights, keys_of_rows, c.extra.key, c.extra.p);
  }
  return at::matmul(weights, c.v);
}

// LibTorch's own generator begins with another seed in every process.
at::Tensor fixed_weight(at::IntArrayRef shape) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(2), at::kFloat);
}

// With the program's own products, where the processor has them, and with LibTorch's.
class RecomputedAttention : public testing::TestWithParam<std::tuple<bool, double, int64_t, CpuProducts>> {
 protected:
  Kind kind() const {
    const auto [causal, p, queries, products] = GetParam();
    return {causal, p, queries};
  }

 private:
  CpuProductsAre products_{std::get<3>(GetParam())};
};

TEST_P(RecomputedAttention, ValueAndGradientsEqualThoseOfPlainAutograd) {
  const Case c = make_case(kind(), at::kFloat), exact = make_case(kind(), at::kDouble);
  const at::Tensor ours = attention_recomputed(c.inputs, c.extra), theirs = reference(exact);
  EXPECT_LE(relative_difference(ours, theirs), 1e-6);
  const at::Tensor weight = fixed_weight(ours.sizes());
  (ours * weight).sum().backward();
  (theirs * weight).sum().backward();
  const Tensors leaves{c.q, c.k, c.v, c.table}, exact_leaves{exact.q, exact.k, exact.v, exact.table};
  for (size_t i = 0; i < leaves.size(); i++) {
    EXPECT_LE(relative_difference(leaves[i].grad(), exact_leaves[i].grad()), 1e-6) << i;
  }
}

// Samples of these lengths in one row, with a bias, or with other sources (cross-attention), which have none.
TEST_P(RecomputedAttention, OfPackedSamplesIsThatOfEachAlone) {
  const auto [causal, p, longest] = kind();
  const std::vector<int64_t> queries{5, longest, 1, 40}, others{longest, 3, 17, 1}, slots{3, 0, 8, 5};
  constexpr int64_t heads = 6, head_dim = 12;
  const int64_t most = std::max<int64_t>(longest, 40);
  for (const bool cross : {false, true}) {
    if (cross && causal) continue;
    const std::vector<int64_t>& keys = cross ? others : queries;
    const auto result = [&, p = p, causal = causal](at::ScalarType type, const auto& attend) {
      at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(5);
      const auto random = [&](at::IntArrayRef shape) {
        return at::randn(shape, generator, at::kFloat).to(type).set_requires_grad(true);
      };
      const int64_t of_queries = std::reduce(queries.begin(), queries.end()),
                    of_keys = std::reduce(keys.begin(), keys.end());
      const Tensors leaves{random({1, of_queries, heads * head_dim}), random({1, of_keys, heads * head_dim}),
                           random({1, of_keys, heads * head_dim}), random({8, heads})};
      BiasAndDropout extra;
      if (!cross) extra.bias_weight = leaves[3];
      extra.key = 77;
      extra.p = p;
      const at::Tensor out = attend(leaves, extra);
      (out * fixed_weight(out.sizes())).sum().backward();
      Tensors values{out};
      for (const at::Tensor& leaf : leaves) {
        if (leaf.grad().defined()) values.push_back(leaf.grad());
      }
      return values;
    };
    const Tensors ours = result(at::kFloat, [&, causal = causal](const Tensors& in, BiasAndDropout extra) {
      Upload upload(at::kCPU);
      PackedAttentionInputs packed{in[0], in[1], in[2], heads, 0.5, causal, {}};
      packed.groups = std::make_shared<const std::vector<AttentionGroup>>(
          attention_groups(queries, keys, slots, upload, at::kCPU));
      extra.bias_buckets = RelativeBias(8, 16, heads, !causal).buckets(most, most, 0, at::kCPU);
      std::vector<at::Tensor> keys_of_rows;
      for (size_t i = 0; i < slots.size(); i++)
        keys_of_rows.push_back(row_keys(at::tensor({slots[i]}), queries[i]));
      extra.row_keys = at::cat(keys_of_rows, 1);
      return packed_attention_recomputed(packed, extra);
    });
    const Tensors theirs = result(at::kDouble, [&, causal = causal](const Tensors& in, BiasAndDropout extra) {
      std::vector<at::Tensor> outs;
      int64_t query = 0, key = 0;
      for (size_t i = 0; i < slots.size(); i++) {
        const auto head_of = [&](const at::Tensor& x, int64_t first, int64_t count) {
          return x.narrow(1, first, count).unflatten(2, {heads, -1}).transpose(1, 2);
        };
        Case c{head_of(in[0], query, queries[i]),
               head_of(in[1], key, keys[i]),
               head_of(in[2], key, keys[i]),
               cross ? at::zeros_like(in[3]) : in[3],
               extra,
               {}};
        c.extra.bias_buckets = RelativeBias(8, 16, heads, !causal).buckets(queries[i], keys[i], 0, at::kCPU);
        c.extra.row_keys = row_keys(at::tensor({slots[i]}), queries[i]);
        c.inputs = {c.q, c.k, c.v, 0.5, causal, {}};
        outs.push_back(reference(c).transpose(1, 2).flatten(2));
        query += queries[i];
        key += keys[i];
      }
      return at::cat(outs, 1);
    });
    ASSERT_EQ(ours.size(), theirs.size());
    for (size_t i = 0; i < ours.size(); i++) {
      EXPECT_LE(relative_difference(ours[i], theirs[i]), 1e-6) << (cross ? "cross " : "self ") << i;
    }
  }
}

// More than a chunk of 32 MB: 4 x 1500 x 1500 weights.
TEST(RecomputedAttentionChunks, GiveValueAndGradientsOfPlainAutograd) {
  const auto result = [](at::ScalarType type, const auto& attend) {
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(3);
    const auto random = [&](at::IntArrayRef shape) {
      return at::randn(shape, generator, at::kFloat).to(type).set_requires_grad(true);
    };
    constexpr int64_t seq = 1500;
    Case c{random({2, 2, seq, 4}), random({2, 2, seq, 4}), random({2, 2, seq, 4}), random({8, 2}), {}, {}};
    c.extra.bias_weight = c.table;
    c.extra.bias_buckets = RelativeBias(8, 16, 2, true).buckets(seq, seq, 0, at::kCPU);
    c.extra.row_keys = row_keys(at::arange(2), seq);
    c.extra.key = 77;
    c.extra.p = 0.1;
    c.inputs = {c.q, c.k, c.v, 0.5, false, {}};
    const at::Tensor out = attend(c);
    (out * fixed_weight(out.sizes())).sum().backward();
    return Tensors{out, c.q.grad(), c.k.grad(), c.v.grad(), c.table.grad()};
  };
  const Tensors ours =
      result(at::kFloat, [](const Case& c) { return attention_recomputed(c.inputs, c.extra); });
  const Tensors theirs = result(at::kDouble, reference);
  for (size_t i = 0; i < ours.size(); i++) EXPECT_LE(relative_difference(ours[i], theirs[i]), 2e-6) << i;
}

TEST(AttentionChunks, AreSmallerUnderASmallLimit) {
  EXPECT_EQ(attention_chunk_bytes(std::nullopt), int64_t{256} << 20);
  EXPECT_EQ(attention_chunk_bytes(24'000'000'000), int64_t{256} << 20);
  EXPECT_EQ(attention_chunk_bytes(6'000'000'000), int64_t{128} << 20);
  EXPECT_EQ(attention_chunk_bytes(1'000'000), int64_t{32} << 20);
}

TEST_P(RecomputedAttention, InBf16ItIsNoFurtherFromTheDefinitionThanPlainAutograd) {
  Case c = make_case(kind(), at::kBFloat16), plain = make_case(kind(), at::kBFloat16);
  Case exact = make_case(kind(), at::kBFloat16);
  for (at::Tensor* t : {&exact.q, &exact.k, &exact.v, &exact.table}) {
    *t = t->detach().to(at::kDouble).set_requires_grad(true);
  }
  exact.inputs = {exact.q, exact.k, exact.v, 0.5, std::get<0>(kind()), {}};
  const at::Tensor ours = attention_recomputed(c.inputs, c.extra), theirs = reference(plain),
                   definition = reference(exact);
  EXPECT_LE(relative_difference(ours, definition), 1.2 * relative_difference(theirs, definition));
  const at::Tensor weight = fixed_weight(definition.sizes()).to(at::kBFloat16);
  for (const at::Tensor& value : {ours, theirs, definition}) (value * weight).sum().backward();
  const Tensors own{c.q, c.k, c.v, c.table}, others{plain.q, plain.k, plain.v, plain.table},
      leaves{exact.q, exact.k, exact.v, exact.table};
  for (size_t i = 0; i < own.size(); i++) {
    EXPECT_LE(relative_difference(own[i].grad(), leaves[i].grad()),
              1.2 * relative_difference(others[i].grad(), leaves[i].grad()))
        << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, RecomputedAttention,
                         testing::Combine(testing::Bool(), testing::Values(0.0, 0.25),
                                          testing::Values(7, 110),
                                          testing::Values(CpuProducts::builtin, CpuProducts::mkl)));

}  // namespace
}  // namespace trainer
