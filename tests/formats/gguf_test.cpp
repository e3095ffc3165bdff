// GGUF files byte by byte, and Q8_0 compared with values computed by hand.
#include "trainer/formats/gguf.h"

#include <cmath>
#include <cstring>
#include <fstream>

#include <gtest/gtest.h>

#include "trainer/base/error.h"

#include "formats/q8_0.h"
#include "support/error_message.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::error_message;
using test::TemporaryDirectory;

GgufSource floats(const std::string& name, std::vector<int64_t> shape, std::vector<float> values) {
  return {name, GgufType::f32, std::move(shape), [values](std::ostream& out) {
            out.write(reinterpret_cast<const char*>(values.data()),
                      static_cast<std::streamsize>(values.size() * sizeof(float)));
          }};
}

template <class Number>
std::string bytes_of(Number number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}
std::string text_of(const std::string& text) { return bytes_of<uint64_t>(text.size()) + text; }

TEST(Gguf, AFileIsLaidOutAsTheFormatSays) {
  const TemporaryDirectory directory;
  write_gguf(directory / "m.gguf",
             {{"general.architecture", std::string("llama")},
              {"llama.block_count", uint32_t{2}},
              {"a.rate", 0.5f},
              {"a.flag", true},
              {"a.names", std::vector<std::string>{"x", ""}},
              {"a.types", std::vector<int32_t>{-1}}},
             {floats("b", {1, 3}, {1, 2, 3}), floats("a", {2}, {4, 5})});
  std::string expected = "GGUF" + bytes_of<uint32_t>(3) + bytes_of<uint64_t>(2) + bytes_of<uint64_t>(6);
  expected += text_of("general.architecture") + bytes_of<uint32_t>(8) + text_of("llama");
  expected += text_of("llama.block_count") + bytes_of<uint32_t>(4) + bytes_of<uint32_t>(2);
  expected += text_of("a.rate") + bytes_of<uint32_t>(6) + bytes_of(0.5f);
  expected += text_of("a.flag") + bytes_of<uint32_t>(7) + "\1";
  expected += text_of("a.names") + bytes_of<uint32_t>(9) + bytes_of<uint32_t>(8) + bytes_of<uint64_t>(2) +
              text_of("x") + text_of("");
  expected += text_of("a.types") + bytes_of<uint32_t>(9) + bytes_of<uint32_t>(5) + bytes_of<uint64_t>(1) +
              bytes_of<int32_t>(-1);
  // Shapes begin with the columns; offsets are from the start of the data.
  expected += text_of("b") + bytes_of<uint32_t>(2) + bytes_of<uint64_t>(3) + bytes_of<uint64_t>(1) +
              bytes_of<uint32_t>(0) + bytes_of<uint64_t>(0);
  expected += text_of("a") + bytes_of<uint32_t>(1) + bytes_of<uint64_t>(2) + bytes_of<uint32_t>(0) +
              bytes_of<uint64_t>(32);
  expected.resize((expected.size() + 31) / 32 * 32);
  expected += bytes_of(1.0f) + bytes_of(2.0f) + bytes_of(3.0f) + std::string(20, '\0');
  expected += bytes_of(4.0f) + bytes_of(5.0f) + std::string(24, '\0');
  EXPECT_EQ(read_file(directory / "m.gguf"), expected);
}

TEST(Gguf, WhatIsWrittenIsReadAgain) {
  const TemporaryDirectory directory;
  write_gguf(directory / "m.gguf", {{"k", std::vector<float>{1, -2}}, {"s", std::string("t")}},
             {floats("w", {2, 2}, {1, 2, 3, 4})});
  const GgufFile file = read_gguf(directory / "m.gguf");
  EXPECT_EQ(std::get<std::vector<float>>(file.metadata.at("k")), (std::vector<float>{1, -2}));
  EXPECT_EQ(std::get<std::string>(file.metadata.at("s")), "t");
  const GgufTensor& tensor = file.tensors.at("w");
  EXPECT_EQ(tensor.shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(tensor.nbytes, 16u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data) % 32, 0u);
  float last = 0;
  std::memcpy(&last, tensor.data + 12, 4);
  EXPECT_EQ(last, 4.0f);
}

TEST(Gguf, ATensorOfTheWrongLengthIsNamedAndLeavesNoFile) {
  const TemporaryDirectory directory;
  GgufSource tensor = floats("w", {3}, {1, 2});
  const std::string message =
      error_message<FormatError>([&] { write_gguf(directory / "m.gguf", {}, {tensor}); });
  EXPECT_TRUE(contains(message, "'w'")) << message;
  EXPECT_TRUE(directory.names().empty());
  tensor.type = GgufType::q8_0;
  EXPECT_TRUE(contains(error_message<FormatError>([&] { write_gguf(directory / "m.gguf", {}, {tensor}); }),
                       "multiple of 32"));
}

TEST(Gguf, EveryShortenedFileIsRefused) {
  const TemporaryDirectory directory(test::memory_path());
  const fs::path path = directory / "m.gguf";
  write_gguf(path, {{"k", std::vector<std::string>{"a", "b"}}, {"n", uint32_t{1}}},
             {floats("w", {9}, std::vector<float>(9))});
  const std::string whole = read_file(path);
  const size_t end = whole.size() - 28;  // the padding behind the last tensor is no loss
  for (size_t size = 0; size < end; size++) {
    write_atomically(path, whole.substr(0, size));
    EXPECT_TRUE(contains(error_message<FormatError>([&] { read_gguf(path); }), path.string())) << size;
  }
}

TEST(Half, RoundsToNearestEven) {
  EXPECT_EQ(to_half(1.0f), 0x3c00);
  EXPECT_EQ(to_half(-2.0f), 0xc000);
  EXPECT_EQ(to_half(1.0f + std::ldexp(1.0f, -11)), 0x3c00);      // a tie: to the even one below
  EXPECT_EQ(to_half(1.0f + 3 * std::ldexp(1.0f, -11)), 0x3c02);  // a tie: to the even one above
  EXPECT_EQ(to_half(65504.0f), 0x7bff);
  EXPECT_EQ(to_half(65519.9f), 0x7bff);
  EXPECT_EQ(to_half(65520.0f), 0x7c00);
  EXPECT_EQ(to_half(std::ldexp(1.0f, -24)), 0x0001);
  EXPECT_EQ(to_half(std::ldexp(1.0f, -25)), 0x0000);
  EXPECT_EQ(to_half(std::ldexp(1.0f, -14)), 0x0400);
  EXPECT_EQ(to_half(std::ldexp(1.0f, -14) * (1 - std::ldexp(1.0f, -12))), 0x0400);
}

TEST(Half, EveryHalfComesBack) {
  for (int bits = 0; bits < 0x10000; bits++) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = from_half(half);
    if (std::isnan(value)) {
      EXPECT_EQ(half & 0x7c00, 0x7c00);
    } else {
      EXPECT_EQ(to_half(value), half);
    }
  }
}

TEST(Q8, ABlockIsAScaleAndRoundedQuotients) {
  std::vector<float> values(32, 0.0f);
  values[0] = -127.0f;
  values[1] = 2.5f;   // half away from zero
  values[2] = -2.5f;  //
  values[3] = 2.49f;
  std::vector<std::byte> block(34);
  quantise_q8_0(values.data(), 32, block.data());
  const auto at = [&](int i) { return static_cast<int8_t>(block[2 + i]); };
  EXPECT_EQ(std::to_integer<int>(block[0]), 0x00);  // 1.0 in fp16
  EXPECT_EQ(std::to_integer<int>(block[1]), 0x3c);
  EXPECT_EQ(at(0), -127);
  EXPECT_EQ(at(1), 3);
  EXPECT_EQ(at(2), -3);
  EXPECT_EQ(at(3), 2);
  EXPECT_EQ(at(31), 0);
  std::vector<float> back(32);
  dequantise_q8_0(block.data(), 32, back.data());
  EXPECT_EQ(back[0], -127.0f);
  EXPECT_EQ(back[1], 3.0f);
}

TEST(Q8, QuotientsComeFromTheScaleBeforeItIsRounded) {
  // 1/127 is no fp16: by the stored scale, 0.00787354, the largest value would be 127.0079 steps.
  std::vector<float> values(32, 1.0f);
  values[5] = 0.5f;  // 63.5 steps, and a hair more or less by another scale
  std::vector<std::byte> block(34);
  quantise_q8_0(values.data(), 32, block.data());
  const float inverse = 1.0f / (1.0f / 127.0f);
  EXPECT_EQ(static_cast<int8_t>(block[2]), 127);
  EXPECT_EQ(static_cast<int8_t>(block[2 + 5]), static_cast<int8_t>(std::round(0.5f * inverse)));
  EXPECT_EQ(std::to_integer<int>(block[0]) | std::to_integer<int>(block[1]) << 8, to_half(1.0f / 127.0f));
}

TEST(Q8, ABlockOfZerosStaysZero) {
  const std::vector<float> values(32, 0.0f);
  std::vector<std::byte> block(34, std::byte{1});
  quantise_q8_0(values.data(), 32, block.data());
  for (std::byte byte : block) EXPECT_EQ(byte, std::byte{0});
}

TEST(Gguf, APointerOfGitLfsIsNamed) {
  TemporaryDirectory directory;
  std::ofstream(directory / "m.gguf")
      << "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n";
  const auto said = error_message<FormatError>([&] { read_gguf(directory / "m.gguf"); });
  EXPECT_TRUE(contains(said, "m.gguf: is the pointer of Git LFS")) << said;
  EXPECT_TRUE(contains(said, "git lfs pull")) << said;
}

}  // namespace
}  // namespace trainer
