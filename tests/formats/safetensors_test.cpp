#include "trainer/formats/safetensors.h"

#include <chrono>
#include <cstring>
#include <fstream>
#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "support/error_message.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::error_message;
using test::TemporaryDirectory;

const fs::path kFileGoldens = fs::path(SOURCE_DIR) / "tests/goldens/formats";

TensorView view_of(Dtype dtype, std::vector<int64_t> shape, std::string& bytes) {
  return {dtype, std::move(shape), reinterpret_cast<std::byte*>(bytes.data()), bytes.size()};
}

template <class T>
std::vector<T> values(const TensorView& view) {
  std::vector<T> values(view.nbytes / sizeof(T));
  if (view.nbytes > 0) std::memcpy(values.data(), view.data, view.nbytes);
  return values;
}

std::string file_text(const std::string& header, const std::string& data = "") {
  std::string text(8, '\0');
  for (int i = 0; i < 8; i++) text[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  return text + header + data;
}

std::string read_error(const std::string& content) {
  TemporaryDirectory directory;
  write_atomically(directory / "m.safetensors", content);
  const std::string message =
      error_message<FormatError>([&] { read_safetensors(directory / "m.safetensors"); });
  EXPECT_TRUE(contains(message, "m.safetensors")) << message;
  return message;
}

TEST(ReadSafetensors, GivesWhatTheReferenceLibraryWrote) {
  const SafetensorsFile file = read_safetensors(kFileGoldens / "all_types.safetensors");
  EXPECT_EQ(file.metadata, (std::map<std::string, std::string>{{"format", "pt"}, {"note", "grün"}}));
  ASSERT_EQ(file.tensors.size(), 12u);
  EXPECT_EQ(file.tensors.at("f32").shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(values<double>(file.tensors.at("f64")), (std::vector<double>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(values<float>(file.tensors.at("f32")), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  // 0 to 5 as IEEE half and as bfloat16.
  EXPECT_EQ(values<uint16_t>(file.tensors.at("f16")),
            (std::vector<uint16_t>{0, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500}));
  EXPECT_EQ(values<uint16_t>(file.tensors.at("bf16")),
            (std::vector<uint16_t>{0, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0}));
  EXPECT_EQ(values<int64_t>(file.tensors.at("i64")), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(values<int32_t>(file.tensors.at("i32")), (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(values<int16_t>(file.tensors.at("i16")), (std::vector<int16_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(values<int8_t>(file.tensors.at("i8")), (std::vector<int8_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(values<uint8_t>(file.tensors.at("u8")), (std::vector<uint8_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(values<uint8_t>(file.tensors.at("bool")), (std::vector<uint8_t>{1, 0, 1, 0, 1, 0}));
  EXPECT_EQ(file.tensors.at("scalar").shape, std::vector<int64_t>{});
  EXPECT_EQ(values<float>(file.tensors.at("scalar")), std::vector<float>{2.5});
  EXPECT_EQ(file.tensors.at("empty").shape, (std::vector<int64_t>{0, 4}));
  EXPECT_EQ(file.tensors.at("bf16").dtype, Dtype::bf16);
  EXPECT_EQ(file.tensors.at("bool").dtype, Dtype::boolean);
}

// verdicts.json holds good and damaged files, and whether the reference library reads them.
TEST(ReadSafetensors, AcceptsAndRefusesWhatTheReferenceLibraryDoes) {
  TemporaryDirectory directory;
  const auto cases = nlohmann::json::parse(read_file(kFileGoldens / "verdicts.json"));
  ASSERT_GT(cases.size(), 200u);
  for (const auto& row : cases) {
    const auto digits = row["file"].get<std::string>();
    std::string content;
    for (size_t i = 0; i < digits.size(); i += 2) {
      content += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
    }
    std::ofstream(directory / "a", std::ios::binary | std::ios::trunc) << content;
    bool accepted = true;
    try {
      read_safetensors(directory / "a");
    } catch (const FormatError& e) {
      accepted = false;
      EXPECT_TRUE(contains(e.what(), (directory / "a").string())) << row["name"] << ": " << e.what();
    }
    EXPECT_EQ(accepted, row["accepted"].get<bool>()) << row["name"];
  }
}

TEST(ReadSafetensors, AnyDamageIsAFormatErrorOrHarmless) {
  TemporaryDirectory directory;
  const std::string good = read_file(kFileGoldens / "all_types.safetensors");
  std::mt19937_64 random(1);
  for (int i = 0; i < 1000; i++) {
    std::string content = good;
    for (int change = 0; change < 1 + i % 4; change++) content[random() % content.size()] = char(random());
    if (i % 3 == 0) content.resize(random() % content.size());
    std::ofstream(directory / "a", std::ios::binary | std::ios::trunc) << content;
    try {
      const SafetensorsFile file = read_safetensors(directory / "a");
      for (const auto& [name, view] : file.tensors) {  // all of it can be read
        uint64_t sum = 0;
        for (size_t at = 0; at < view.nbytes; at++) sum += std::to_integer<uint8_t>(view.data[at]);
        EXPECT_LE(sum, 255 * view.nbytes);
      }
    } catch (const FormatError&) {
    }
  }
}

TEST(ReadSafetensors, SaysWhatIsWrong) {
  EXPECT_TRUE(contains(read_error("short"), "5 bytes"));
  EXPECT_TRUE(contains(read_error(R"({"json": "but no safetensors file"})"), "not a safetensors file"));
  EXPECT_TRUE(
      contains(read_error("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"), "git lfs pull"));
  EXPECT_TRUE(contains(read_error("PK\x03\x04 archive.data"), "is a zip archive"));
  EXPECT_TRUE(contains(read_error("<!DOCTYPE html><html>"), "a page of HTML"));
  const std::string a = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  EXPECT_TRUE(contains(read_error(file_text(R"({"a":{"dtype":"F32","shape":[NaN]}})", "")),
                       "the header is not JSON: byte 30 of it: NaN is no value of JSON"));
  EXPECT_TRUE(contains(read_error(file_text(R"({"a":{"shape":[-Infinity]}})", "")), "Infinity is no value"));
  EXPECT_TRUE(
      contains(read_error(file_text(R"({"a":{"shape":[1e999]}})", "")), "a number that is too large"));
  EXPECT_TRUE(contains(read_error(file_text(R"({"a":{"dtype":"F32","dtype":"F32"}})", "")),
                       "tensor 'a': the key 'dtype' occurs twice"));
  EXPECT_TRUE(contains(read_error(file_text(R"({"__metadata__":{"k":"1","k":"2"}})", "")),
                       "__metadata__: the key 'k' occurs twice"));
  EXPECT_TRUE(
      contains(read_error(file_text("{" + a + "}", "1234")), "truncated: its tensors have 8 bytes, 4"));
  EXPECT_TRUE(contains(read_error(file_text("{" + a + "," + a + "}", "12345678")), "'a' occurs twice"));
  const std::string f8 =
      read_error(file_text(R"({"w":{"dtype":"F8_E5M2","shape":[4],"data_offsets":[0,4]}})", "1234"));
  EXPECT_TRUE(contains(f8, "'w'")) << f8;
  EXPECT_TRUE(contains(f8, "F8_E5M2")) << f8;
  const std::string size =
      read_error(file_text(R"({"w":{"dtype":"BF16","shape":[4,2],"data_offsets":[0,8]}})", "12345678"));
  EXPECT_TRUE(contains(size, "tensor 'w': data_offsets give 8 bytes, BF16 [4, 2] has 16")) << size;
  const std::string gap = read_error(
      file_text("{" + a + R"(,"b":{"dtype":"U8","shape":[1],"data_offsets":[9,10]}})", "1234567890"));
  EXPECT_TRUE(contains(gap, "tensor 'b' begins at byte 9, after a gap")) << gap;
}

TEST(ReadSafetensors, ADeeplyNestedHeaderIsRefusedAtOnce) {
  EXPECT_TRUE(contains(read_error(file_text(std::string(100'000, '['))), "nested too deeply"));
}

TEST(WriteSafetensors, WhatIsWrittenIsReadBack) {
  TemporaryDirectory directory;
  std::string a(6, 'a'), b(8, 'b'), c("c"), empty;
  const std::map<std::string, TensorView> tensors{{"z", view_of(Dtype::f32, {2}, b)},
                                                  {"a \"quoted\"\n", view_of(Dtype::bf16, {3, 1}, a)},
                                                  {"grün", view_of(Dtype::u8, {}, c)},
                                                  {"empty", view_of(Dtype::f64, {0, 3}, empty)}};
  write_safetensors(directory / "m", tensors, {{"step", "7"}});
  const SafetensorsFile file = read_safetensors(directory / "m");
  EXPECT_EQ(file.metadata, (std::map<std::string, std::string>{{"format", "pt"}, {"step", "7"}}));
  ASSERT_EQ(file.tensors.size(), tensors.size());
  for (const auto& [name, view] : tensors) {
    const TensorView& read = file.tensors.at(name);
    EXPECT_EQ(read.dtype, view.dtype);
    EXPECT_EQ(read.shape, view.shape);
    EXPECT_EQ(values<char>(read), values<char>(view));
  }
}

TEST(WriteSafetensors, EveryTensorIsAlignedToItsElement) {
  TemporaryDirectory directory;
  std::string one(1, 'x'), two(2, 'x'), four(4, 'x'), eight(8, 'x');
  write_safetensors(directory / "m", {{"a", view_of(Dtype::u8, {1}, one)},
                                      {"b", view_of(Dtype::f64, {1}, eight)},
                                      {"c", view_of(Dtype::bf16, {1}, two)},
                                      {"d", view_of(Dtype::f32, {1}, four)}});
  for (const auto& [name, view] : read_safetensors(directory / "m").tensors) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view.data) % dtype_size(view.dtype), 0u) << name;
  }
}

TEST(WriteSafetensors, NoTensorsAreAFileToo) {
  TemporaryDirectory directory;
  write_safetensors(directory / "m", TensorSources{});
  EXPECT_TRUE(read_safetensors(directory / "m").tensors.empty());
}

TEST(WriteSafetensors, EachTensorIsAskedForWhenItsTurnComes) {
  TemporaryDirectory directory;
  int produced = 0;
  TensorSources sources;
  for (const char* name : {"a", "b", "c"}) {
    sources[name] = {Dtype::u8, {4}, [&produced](std::ostream& out) {
                       out << std::string(4, static_cast<char>('0' + produced++));
                     }};
  }
  write_safetensors(directory / "m", sources);
  EXPECT_EQ(produced, 3);
  EXPECT_EQ(values<char>(read_safetensors(directory / "m").tensors.at("c")), std::vector<char>(4, '2'));
}

TEST(WriteSafetensors, ATensorOfTheWrongSizeLeavesNothing) {
  TemporaryDirectory directory;
  std::string three(3, 'x');
  const std::string message = error_message<FormatError>([&] {
    write_safetensors(directory / "m", {{"w", view_of(Dtype::f32, {1}, three)}});
  });
  EXPECT_TRUE(contains(message, "tensor 'w'")) << message;
  EXPECT_TRUE(directory.names().empty());
}

TEST(WriteSafetensors, AFileCanBeReplacedByItsOwnTensors) {
  TemporaryDirectory directory;
  std::string bytes(8, 'x');
  write_safetensors(directory / "m", {{"w", view_of(Dtype::f32, {2}, bytes)}});
  const SafetensorsFile file = read_safetensors(directory / "m");
  write_safetensors(directory / "m", file.tensors);
  EXPECT_EQ(values<char>(read_safetensors(directory / "m").tensors.at("w")), std::vector<char>(8, 'x'));
}

// Once the time was the square of their number: minutes for these.
TEST(ReadSafetensors, ManyTensorsTakeATimeInProportion) {
  std::string header = "{";
  for (int i = 0; i < 100'000; i++)
    header +=
        concat(i > 0 ? "," : "", "\"t", i, "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}");
  TemporaryDirectory directory;
  write_atomically(directory / "m.safetensors", file_text(header + "}"));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(read_safetensors(directory / "m.safetensors").tensors.size(), 100'000u);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

}  // namespace
}  // namespace trainer
