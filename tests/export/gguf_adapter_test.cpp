// A LoRA adapter in GGUF: with a GGUF of the base it is the merged model, and what it cannot hold is refused.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trainer/base/error.h"
#include "trainer/export/export_model.h"

#include "export/gguf_types.h"
#include "models/golden.h"
#include "support/error_message.h"
#include "support/golden_directory.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::error_message;
using test::TemporaryDirectory;

// A golden model with its adapter. Its tokenizer has what a GGUF needs.
fs::path copy_adapter(const std::string& golden, const fs::path& to) {
  fs::create_directories(to);
  fs::copy(golden_directory(golden) / "model", to / "model");
  fs::copy(golden_directory(golden) / "adapter", to / "adapter");
  write_atomically(to / "model/tokenizer.json", R"({"version": "1.0", "added_tokens": [], "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
    "post_processor": null, "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})");
  return to / "adapter";
}

at::Tensor values_of(const GgufFile& file, const std::string& name) {
  const GgufTensor& tensor = file.tensors.at(name);
  return read_gguf_values(tensor, 0, tensor.shape[0]);
}

class ExportGgufAdapter : public ::testing::TestWithParam<std::string> {};

// As readers apply it: W + alpha / r B A, with the r of each B.
TEST_P(ExportGgufAdapter, WithTheBaseItIsTheMergedModel) {
  const TemporaryDirectory directory;
  const fs::path adapter = copy_adapter(GetParam(), directory.path());
  export_gguf({adapter, directory / "merged.gguf"}, GgufType::f32);
  export_gguf({directory / "model", directory / "base.gguf"}, GgufType::f32);
  ExportRequest request{adapter, directory / "lora.gguf"};
  request.adapter_only = true;
  EXPECT_TRUE(contains(export_gguf(request, std::nullopt).check, "all"));
  const GgufFile merged = read_gguf(directory / "merged.gguf"), base = read_gguf(directory / "base.gguf"),
                 lora = read_gguf(directory / "lora.gguf");
  EXPECT_EQ(std::get<std::string>(lora.metadata.at("general.type")), "adapter");
  EXPECT_EQ(lora.metadata.at("general.architecture"), base.metadata.at("general.architecture"));
  const float alpha = std::get<float>(lora.metadata.at("adapter.lora.alpha"));
  size_t changed = 0;
  for (const auto& [name, tensor] : base.tensors) {
    at::Tensor expected = values_of(base, name);
    if (lora.tensors.contains(name + ".lora_a")) {
      const at::Tensor a = values_of(lora, name + ".lora_a"), b = values_of(lora, name + ".lora_b");
      expected = expected.addmm(b, a, 1, alpha / static_cast<float>(b.size(1)));
      changed++;
    }
    EXPECT_TRUE(values_of(merged, name).allclose(expected, 1e-5, 1e-6)) << name;
  }
  EXPECT_GT(changed, 0u);
  EXPECT_EQ(lora.tensors.size(), 2 * changed);
}

TEST_P(ExportGgufAdapter, HasTheTypeThatIsAskedFor) {
  const TemporaryDirectory directory;
  ExportRequest request{copy_adapter(GetParam(), directory.path()), directory / "lora.gguf"};
  request.adapter_only = true;
  export_gguf(request, GgufType::f16);
  for (const auto& [name, tensor] : read_gguf(directory / "lora.gguf").tensors)
    EXPECT_EQ(tensor.type, GgufType::f16) << name;
}

INSTANTIATE_TEST_SUITE_P(Adapters, ExportGgufAdapter,
                         ::testing::Values("llama_lora", "qwen2_lora", "qwen3_lora", "llama_patterns"),
                         [](const auto& info) { return info.param; });

TEST(ExportGgufAdapterRefusals, WhatGgufCannotHoldIsNamed) {
  for (const auto& [golden, word] : {std::pair("qwen2_dora", "DoRA"), {"llama_lora_head", "whole weights"}}) {
    const TemporaryDirectory directory;
    ExportRequest request{copy_adapter(golden, directory.path()), directory / "lora.gguf"};
    request.adapter_only = true;
    const std::string message = error_message<FormatError>([&] { export_gguf(request, std::nullopt); });
    EXPECT_TRUE(contains(message, word)) << golden << ": " << message;
    EXPECT_TRUE(contains(message, "without --adapter")) << message;
    EXPECT_FALSE(fs::exists(directory / "lora.gguf"));
  }
}

TEST(ExportGgufAdapterRefusals, AModelIsNoAdapter) {
  const TemporaryDirectory directory;
  copy_adapter("llama_lora", directory.path());
  ExportRequest request{directory / "model", directory / "lora.gguf"};
  request.adapter_only = true;
  EXPECT_TRUE(
      contains(error_message<ConfigError>([&] { export_gguf(request, std::nullopt); }), "not an adapter"));
}

}  // namespace
}  // namespace trainer
