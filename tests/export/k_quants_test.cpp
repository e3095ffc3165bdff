// Types of GGUF with few bits: the bytes of ggml, and which matrix of a model gets which type.
#include "export/k_quants.h"

#include <cmath>
#include <cstring>
#include <map>

#include <gtest/gtest.h>

#include "trainer/base/strings.h"

#include "export/gguf_types.h"
#include "formats/gguf_blocks.h"

namespace trainer {
namespace {

// Sums of three numbers of a linear congruential generator; a block of zeros, two of constants, one with an
// outlier, and tiny values.
std::vector<float> values_of_all_kinds() {
  std::vector<float> values;
  uint32_t state = 7;
  for (int i = 0; i < 64 * 256; i++) {
    int32_t sum = 0;
    for (int part = 0; part < 3; part++) {
      state = state * 1664525 + 1013904223;
      sum += static_cast<int32_t>(state >> 8) - (1 << 23);
    }
    values.push_back(std::ldexp(static_cast<float>(sum), -24));
  }
  std::fill(values.begin() + 256, values.begin() + 512, 0.0f);
  std::fill(values.begin() + 512, values.begin() + 544, 0.25f);
  std::fill(values.begin() + 544, values.begin() + 576, -0.25f);
  values[600] = 40;
  for (size_t i = 1024; i < 2048; i++) values[i] = std::ldexp(values[i], -14);
  return values;
}

uint64_t fnv_1a(const std::vector<std::byte>& bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const std::byte byte : bytes) hash = (hash ^ std::to_integer<uint64_t>(byte)) * 0x100000001b3;
  return hash;
}

std::string hex(const std::vector<std::byte>& bytes, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; i++) {
    constexpr const char* digits = "0123456789abcdef";
    text += digits[std::to_integer<int>(bytes[i]) >> 4];
    text += digits[std::to_integer<int>(bytes[i]) & 15];
  }
  return text;
}

struct KnownBytes {
  const char* name;
  GgufType type;
  void (*quantise)(const float*, int64_t, std::byte*);
  void (*dequantise)(const std::byte*, int64_t, float*);
  uint64_t hash;      // of all blocks
  const char* first;  // the first bytes
  double error;       // the 2-norm of what is lost of ordinary values, as a part of theirs
};

class KQuants : public ::testing::TestWithParam<KnownBytes> {};

// What ggml_quantize_chunk() of llama.cpp (October 2026) wrote for these values.
TEST_P(KQuants, BytesAreGgmls) {
  const std::vector<float> values = values_of_all_kinds();
  const GgufBlock block = gguf_block(GetParam().type);
  std::vector<std::byte> bytes(values.size() / static_cast<size_t>(block.values) *
                               static_cast<size_t>(block.bytes));
  GetParam().quantise(values.data(), std::ssize(values), bytes.data());
  EXPECT_EQ(hex(bytes, std::strlen(GetParam().first) / 2), GetParam().first);
  EXPECT_EQ(fnv_1a(bytes), GetParam().hash);
}

TEST_P(KQuants, ValuesComeBackWithASmallError) {
  std::vector<float> values = values_of_all_kinds();
  values.erase(values.begin(), values.begin() + 2048);
  const GgufBlock block = gguf_block(GetParam().type);
  std::vector<std::byte> bytes(values.size() / static_cast<size_t>(block.values) *
                               static_cast<size_t>(block.bytes));
  GetParam().quantise(values.data(), std::ssize(values), bytes.data());
  std::vector<float> back(values.size());
  GetParam().dequantise(bytes.data(), std::ssize(values), back.data());
  double lost = 0, all = 0;
  for (size_t i = 0; i < values.size(); i++) {
    lost += std::pow(values[i] - back[i], 2);
    all += std::pow(values[i], 2);
  }
  EXPECT_LT(std::sqrt(lost / all), GetParam().error);
  EXPECT_GT(std::sqrt(lost / all), GetParam().error / 2);
}

INSTANTIATE_TEST_SUITE_P(
    Types, KQuants,
    ::testing::Values(KnownBytes{"Q4_K", GgufType::q4_k, quantise_q4_k, dequantise_q4_k, 0xd45d28ca8622ed6e,
                                 "a0180f25fafffdfbb2bffceefea64d6a7a4ad0af88eb79d6", 0.075},
                      KnownBytes{"Q6_K", GgufType::q6_k, quantise_q6_k, dequantise_q6_k, 0xa6963d6fd68a9f2c,
                                 "b8eac0efd3afa69a1c62261f994891d56d7be75093784d7b", 0.02},
                      KnownBytes{"Q5_0", GgufType::q5_0, quantise_q5_0, dequantise_q5_0, 0x1998ab3195a6bdd4,
                                 "122c7bdab1b564e5c02f22b7f35d9ee163b0050cf112", 0.05}),
    [](const auto& info) { return info.param.name; });

std::map<std::string, GgufType> types_of(std::vector<GgufShape> tensors, GgufType type, int64_t blocks) {
  const std::vector<GgufType> types = gguf_types(tensors, type, blocks);
  std::map<std::string, GgufType> out;
  for (size_t i = 0; i < tensors.size(); i++) out[tensors[i].name] = types[i];
  return out;
}

// The layers of a model of 16 blocks that llama-quantize gives more bits: the first and last two, and every
// third between.
TEST(Q4Km, ValuesAndDownProjectionsOfSomeLayersHaveMoreBits) {
  std::vector<GgufShape> tensors{{"token_embd.weight", {512, 256}}, {"output.weight", {512, 256}}};
  for (int block = 0; block < 16; block++)
    for (const char* name : {"attn_q", "attn_v", "ffn_down", "ffn_up"})
      tensors.push_back({concat("blk.", block, ".", name, ".weight"), {256, 256}});
  const auto types = types_of(tensors, GgufType::q4_k, 16);
  EXPECT_EQ(types.at("output.weight"), GgufType::q6_k);
  EXPECT_EQ(types.at("token_embd.weight"), GgufType::q4_k);
  for (int block = 0; block < 16; block++) {
    const bool more = block < 2 || block >= 14 || block == 4 || block == 7 || block == 10 || block == 13;
    for (const char* name : {"attn_v", "ffn_down"})
      EXPECT_EQ(types.at(concat("blk.", block, ".", name, ".weight")), more ? GgufType::q6_k : GgufType::q4_k)
          << block << name;
    EXPECT_EQ(types.at(concat("blk.", block, ".attn_q.weight")), GgufType::q4_k);
  }
}

TEST(Q4Km, AnEmbeddingThatIsTheOutputHasMoreBits) {
  EXPECT_EQ(types_of({{"token_embd.weight", {512, 256}}}, GgufType::q4_k, 1).at("token_embd.weight"),
            GgufType::q6_k);
}

TEST(Q4Km, RowsThatAreNoBlocksGetTheNextTypeThatFits) {
  const auto types = types_of({{"blk.0.attn_q.weight", {8, 96}},
                               {"blk.0.attn_v.weight", {8, 96}},
                               {"blk.0.attn_k.weight", {8, 40}},
                               {"blk.0.attn_norm.weight", {256}},
                               {"blk.0.ssm_conv1d.weight", {256, 4}}},
                              GgufType::q4_k, 1);
  EXPECT_EQ(types.at("blk.0.attn_q.weight"), GgufType::q5_0);
  EXPECT_EQ(types.at("blk.0.attn_v.weight"), GgufType::q8_0);
  EXPECT_EQ(types.at("blk.0.attn_k.weight"), GgufType::f16);
  EXPECT_EQ(types.at("blk.0.attn_norm.weight"), GgufType::f32);
  EXPECT_EQ(types.at("blk.0.ssm_conv1d.weight"), GgufType::f32);
}

}  // namespace
}  // namespace trainer
