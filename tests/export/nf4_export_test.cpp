// Exports in NF4, exports of models that are stored in NF4, and merging adapters that were trained on NF4
// weights.
#include <ATen/core/grad_mode.h>

#include "trainer/adapters/lora.h"
#include "trainer/base/error.h"
#include "trainer/export/export_model.h"
#include "trainer/formats/model_directory.h"
#include "trainer/formats/peft.h"

#include "formats/bitsandbytes.h"
#include "models/golden.h"
#include "ops/nf4.h"
#include "support/error_message.h"
#include "support/golden_directory.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::error_message;
using test::TemporaryDirectory;

const char* const kQuery = "model.layers.0.self_attn.q_proj.weight";

ExportReport export_nf4(const fs::path& source, const fs::path& out, bool double_quant = true) {
  ExportRequest request{source, out};
  request.quantise = Quantisation{double_quant};
  return export_model(request);
}

std::set<std::string> names_in_nf4(Model& model) {
  std::set<std::string> names;
  model.for_each_parameter([&](const std::string& name, Parameter& parameter) {
    if (!parameter.value.is_tensor()) names.insert(name);
  });
  return names;
}

at::Tensor logits_of(Model& model, const Golden& golden) {
  const at::NoGradGuard no_grad;
  return model.head().logits(model.supervised_states(golden.whole(), ForwardContext{}));
}

std::map<std::string, std::string> bytes_of(const fs::path& model) {
  std::map<std::string, std::string> bytes;
  for (const auto& [name, view] : read_model_weights(model).tensors)
    bytes[name] = std::string(reinterpret_cast<const char*>(view.data), view.nbytes);
  return bytes;
}

at::Tensor values_of(const fs::path& model, const std::string& name) {
  const ModelWeights weights = read_model_weights(model);
  return mapped_tensor(weights.tensors.at(name), weights.mapping_of(name)).clone();
}

// A copy of a golden adapter on another base, as if it had been trained there.
fs::path adapter_on(const fs::path& base, const std::string& golden, const fs::path& to,
                    const std::map<std::string, std::string>& metadata = {}) {
  const fs::path from = golden_directory(golden) / "adapter";
  fs::create_directories(to);
  AdapterConfig config = read_adapter_config(from);
  config.base_model_name_or_path = base;
  write_adapter_config(to, config);
  write_adapter_weights(to, read_adapter_weights(from).tensors, metadata);
  return to;
}

class ExportNf4 : public ::testing::TestWithParam<std::string> {};

TEST_P(ExportNf4, TheExportIsTheModelAsItIsQuantisedWhileItIsLoaded) {
  const Golden golden(GetParam());
  const fs::path source = golden.directory / "model";
  for (const bool double_quant : {true, false}) {
    const TemporaryDirectory directory;
    const ExportReport report = export_nf4(source, directory / "out", double_quant);
    EXPECT_TRUE(contains(report.difference, "before it was quantised")) << report.difference;
    LoadOptions options;
    const auto written = load_model(directory / "out", options);
    options.quantise = Quantisation{double_quant};
    const auto quantised = load_model(source, options);
    EXPECT_FALSE(names_in_nf4(*written).empty());
    EXPECT_EQ(names_in_nf4(*written), names_in_nf4(*quantised));
    EXPECT_TRUE(logits_of(*written, golden).equal(logits_of(*quantised, golden)));
  }
}

TEST_P(ExportNf4, InSmallShardsItIsTheSameModel) {
  const TemporaryDirectory directory;
  const fs::path source = golden_directory(GetParam()) / "model";
  export_nf4(source, directory / "whole");
  ExportRequest request{source, directory / "shards"};
  request.quantise = Quantisation{};
  request.max_shard_bytes = 8'000;
  export_model(request);
  EXPECT_FALSE(fs::exists(directory / "shards/model.safetensors"));
  EXPECT_EQ(bytes_of(directory / "shards"), bytes_of(directory / "whole"));
}

INSTANTIATE_TEST_SUITE_P(Models, ExportNf4,
                         ::testing::Values("t5_v1_0", "t5_v1_1", "umt5", "qwen2", "qwen3", "llama",
                                           "llama_31", "mistral", "gemma2", "gemma3", "phi3", "granite"),
                         [](const auto& info) { return info.param; });

class ExportNf4Files : public ::testing::TestWithParam<std::string> {};

TEST_P(ExportNf4Files, AreThoseThatTransformersSaves) {
  const fs::path golden = golden_directory(GetParam());
  const TemporaryDirectory directory;
  export_nf4(golden / "model", directory / "out");
  const auto ours = bytes_of(directory / "out"), theirs = bytes_of(golden / "stored");
  ASSERT_EQ(ours.size(), theirs.size());
  for (const auto& [name, bytes] : theirs) EXPECT_EQ(ours.at(name), bytes) << name;
  const ModelWeights written = read_model_weights(directory / "out"),
                     stored = read_model_weights(golden / "stored");
  for (const auto& [name, view] : stored.tensors)
    EXPECT_EQ(written.tensors.at(name).shape, view.shape) << name;
  EXPECT_EQ(read_model_config(directory / "out")["quantization_config"],
            read_model_config(golden / "stored")["quantization_config"]);
}

INSTANTIATE_TEST_SUITE_P(Models, ExportNf4Files, ::testing::Values("llama_nf4", "qwen2_nf4", "t5_v1_1_nf4"),
                         [](const auto& info) { return info.param; });

TEST(ExportNf4Tensors, EmbeddingHeadAndNormsStayAsTheyAre) {
  const TemporaryDirectory directory;
  const fs::path source = golden_directory("llama") / "model";
  export_nf4(source, directory / "out");
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"})
    EXPECT_TRUE(values_of(directory / "out", name).equal(values_of(source, name))) << name;
  EXPECT_EQ(read_model_weights(directory / "out").tensors.at(kQuery).dtype, Dtype::u8);
}

// Transformers keeps it in fp32 or bf16 (_keep_in_fp32_modules).
TEST(ExportNf4Tensors, TheSecondFeedForwardMatrixOfAT5StaysAsItIs) {
  const TemporaryDirectory directory;
  export_nf4(golden_directory("t5_v1_1") / "model", directory / "out");
  const ModelWeights weights = read_model_weights(directory / "out");
  EXPECT_EQ(weights.tensors.at("encoder.block.0.layer.1.DenseReluDense.wo.weight").dtype, Dtype::f32);
  EXPECT_EQ(weights.tensors.at("encoder.block.0.layer.1.DenseReluDense.wi_0.weight").dtype, Dtype::u8);
}

TEST(ExportNf4Tensors, AnotherTypeIsRoundedToBeforeQuantising) {
  const TemporaryDirectory directory;
  const fs::path source = golden_directory("llama") / "model";
  ExportRequest request{source, directory / "out", Dtype::bf16};
  request.quantise = Quantisation{};
  export_model(request);
  const Nf4Tensor expected = quantise_nf4(kQuery, values_of(source, kQuery).to(at::kBFloat16), true);
  EXPECT_TRUE(values_of(directory / "out", kQuery).flatten().equal(expected.codes));
  EXPECT_EQ(values_of(directory / "out", "model.norm.weight").scalar_type(), at::kBFloat16);
  EXPECT_EQ(read_model_config(directory / "out")["quantization_config"]["bnb_4bit_compute_dtype"],
            "bfloat16");
}

TEST(ExportFromNf4, TheWeightsAreDequantised) {
  const TemporaryDirectory directory;
  const fs::path source = golden_directory("llama") / "model";
  export_nf4(source, directory / "nf4");
  const ExportReport report = export_model({directory / "nf4", directory / "out"});
  EXPECT_TRUE(contains(report.check, "bit for bit")) << report.check;
  const Nf4Tensor codes = quantise_nf4(kQuery, values_of(source, kQuery), true);
  const at::Tensor written = values_of(directory / "out", kQuery);
  EXPECT_TRUE(written.flatten().equal(dequantise_nf4(codes, 0, codes.numel(), at::kFloat)));
  EXPECT_FALSE(read_model_config(directory / "out").contains("quantization_config"));
  EXPECT_EQ(read_model_weights(directory / "out").tensors.size(), read_model_weights(source).tensors.size());
}

TEST(ExportFromNf4, QuantisingTwiceIsRefused) {
  const TemporaryDirectory directory;
  export_nf4(golden_directory("llama") / "model", directory / "nf4");
  const std::string message =
      error_message<ConfigError>([&] { export_nf4(directory / "nf4", directory / "out"); });
  EXPECT_TRUE(contains(message, "already")) << message;
  EXPECT_EQ(directory.names(), std::set<std::string>{"nf4"});
}

TEST(ExportFromNf4, OtherQuantisationsAreRefusedByName) {
  const TemporaryDirectory directory;
  for (const char* method : {"gptq", "awq", "bitsandbytes"}) {
    const fs::path model = directory / method;
    fs::copy(golden_directory("llama") / "model", model);
    auto config = nlohmann::json::parse(read_file(model / "config.json"));
    config["quantization_config"] = {{"quant_method", method}, {"load_in_8bit", true}};
    write_atomically(model / "config.json", config.dump());
    std::vector<uint8_t> codes(8);
    SafetensorsFile file = read_safetensors(model / "model.safetensors");
    file.tensors["codes"] = {Dtype::u8, {8}, reinterpret_cast<std::byte*>(codes.data()), codes.size()};
    write_safetensors(model / "new", file.tensors);
    fs::rename(model / "new", model / "model.safetensors");
    const std::string message = error_message<FormatError>([&] { export_model({model, directory / "out"}); });
    EXPECT_TRUE(contains(message, method == std::string("bitsandbytes") ? "int8" : method)) << message;
    EXPECT_TRUE(contains(message, model.string())) << message;
    EXPECT_FALSE(fs::exists(directory / "out"));
  }
}

class MergeOnNf4 : public ::testing::TestWithParam<std::string> {};

TEST_P(MergeOnNf4, WithoutTheOriginalTheAdapterIsMergedOntoTheDequantisedWeights) {
  const Golden golden(GetParam());
  const TemporaryDirectory directory;
  export_nf4(golden.directory / "model", directory / "nf4");
  const fs::path adapter = adapter_on(directory / "nf4", GetParam(), directory / "adapter");
  const ExportReport report = export_model({adapter, directory / "out"});
  EXPECT_GT(report.merged, 0);
  EXPECT_TRUE(contains(report.difference, "trained model")) << report.difference;
  const at::Tensor trained = logits_of(*load_model_or_adapter(adapter, {}), golden);
  EXPECT_LE(relative_error(logits_of(*load_model(directory / "out", {}), golden), trained), 1e-5);
}

TEST_P(MergeOnNf4, WithTheOriginalItIsTheMergeOntoTheOriginal) {
  const TemporaryDirectory directory;
  const fs::path original = golden_directory(GetParam()) / "model";
  export_nf4(original, directory / "nf4");
  ExportRequest request{adapter_on(directory / "nf4", GetParam(), directory / "adapter"), directory / "out"};
  request.base = original;
  const ExportReport report = export_model(request);
  EXPECT_TRUE(contains(report.difference, "trained model")) << report.difference;
  export_model({golden_directory(GetParam()) / "adapter", directory / "expected"});
  EXPECT_EQ(bytes_of(directory / "out"), bytes_of(directory / "expected"));
}

TEST_P(MergeOnNf4, WhatWasQuantisedInTrainingIsMergedOntoItsOriginalUnlessAskedOtherwise) {
  const TemporaryDirectory directory;
  const fs::path original = golden_directory(GetParam()) / "model";
  const fs::path adapter = adapter_on(original, GetParam(), directory / "adapter",
                                      {{kTrainedOn, std::string("nf4") + kDoublyQuantised}});
  EXPECT_FALSE(names_in_nf4(*load_model_or_adapter(adapter, {})).empty());
  EXPECT_TRUE(contains(export_model({adapter, directory / "out"}).difference, "trained model"));
  export_model({golden_directory(GetParam()) / "adapter", directory / "expected"});
  EXPECT_EQ(bytes_of(directory / "out"), bytes_of(directory / "expected"));

  ExportRequest request{adapter, directory / "dequantised"};
  request.dequantised = true;
  export_model(request);
  export_nf4(original, directory / "nf4");
  export_model({adapter_on(directory / "nf4", GetParam(), directory / "other"), directory / "from_nf4"});
  EXPECT_EQ(bytes_of(directory / "dequantised"), bytes_of(directory / "from_nf4"));
}

INSTANTIATE_TEST_SUITE_P(Adapters, MergeOnNf4,
                         ::testing::Values("t5_v1_0_lora", "t5_v1_1_lora_all", "qwen2_lora", "llama_patterns",
                                           "qwen2_dora"),
                         [](const auto& info) { return info.param; });

TEST(MergeIntoNf4, OnlyWhatTheAdapterChangesIsQuantisedAgain) {
  const TemporaryDirectory directory;
  export_nf4(golden_directory("llama_lora") / "model", directory / "nf4");
  const fs::path adapter = adapter_on(directory / "nf4", "llama_lora", directory / "adapter");
  export_nf4(adapter, directory / "out");
  export_model({adapter, directory / "wide"});
  const auto before = bytes_of(directory / "nf4"), after = bytes_of(directory / "out");
  int64_t changed = 0;
  for (const auto& [name, bytes] : after) {
    if (bytes == before.at(name)) continue;
    if (!name.ends_with(".weight")) continue;  // a scale of one that is changed
    changed++;
    const Nf4Tensor expected = quantise_nf4(name, values_of(directory / "wide", name), true);
    EXPECT_TRUE(values_of(directory / "out", name).flatten().equal(expected.codes)) << name;
  }
  EXPECT_EQ(changed, export_model({adapter, directory / "again"}).merged);
  EXPECT_EQ(before.size(), after.size());
}

TEST(MergeOptionsOfNf4, ThoseThatContradictTheSourceAreRefused) {
  const TemporaryDirectory directory;
  const fs::path model = golden_directory("llama_lora") / "model";
  export_nf4(model, directory / "nf4");
  const auto refusal = [&](const fs::path& source, const fs::path& base, bool dequantised) {
    ExportRequest request{source, directory / "out"};
    request.base = base;
    request.dequantised = dequantised;
    return error_message<ConfigError>([&] { export_model(request); });
  };
  const fs::path adapter = golden_directory("llama_lora") / "adapter";
  EXPECT_TRUE(contains(refusal(model, model, false), "not an adapter"));
  EXPECT_TRUE(contains(refusal(model, {}, true), "not an adapter"));
  EXPECT_TRUE(contains(refusal(adapter, model, true), "leave out one"));
  EXPECT_TRUE(contains(refusal(adapter, directory / "nf4", false), "original weights"));
  EXPECT_FALSE(fs::exists(directory / "out"));
}

}  // namespace
}  // namespace trainer
