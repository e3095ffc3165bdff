// What an export writes, what it refuses, and what a failed export leaves behind.
#include <cmath>
#include <cstring>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/export/export_model.h"
#include "trainer/formats/model_directory.h"
#include "trainer/formats/peft.h"

#include "export/gguf_layout.h"
#include "export/gguf_types.h"
#include "export/new_output.h"
#include "models/golden.h"
#include "support/each_file_fault.h"
#include "support/error_message.h"
#include "support/golden_directory.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::error_message;
using test::TemporaryDirectory;

ExportReport export_as(const fs::path& source, const fs::path& out, Dtype dtype) {
  return export_model({source, out, dtype});
}

at::Tensor tensor_of(const ModelWeights& weights, const std::string& name) {
  return mapped_tensor(weights.tensors.at(name), weights.mapping_of(name));
}

// A golden model whose tensor `name` has `value` somewhere.
void copy_with(const fs::path& from, const fs::path& to, const std::string& name, float value) {
  fs::copy(from, to);
  const ModelWeights weights = read_model_weights(from);
  std::map<std::string, TensorView> views = weights.tensors;
  const at::Tensor changed = tensor_of(weights, name).clone();
  changed.view(-1)[1] = value;
  views[name] = view_of(changed);
  fs::remove(to / "model.safetensors");
  write_model_weights(to, sources_of(views));
}

TEST(RequireSpace, SaysWhatTheExportNeeds) {
  const TemporaryDirectory directory;
  EXPECT_NO_THROW(require_space(directory.path(), 1));
  const std::string message = error_message<FormatError>([&] { require_space(directory.path(), INT64_MAX); });
  EXPECT_TRUE(contains(message, "the export needs")) << message;
  EXPECT_FALSE(contains(message, "save.total_limit")) << message;
}

class Export : public ::testing::TestWithParam<std::string> {};

TEST_P(Export, TheSameTypeGivesTheSameLogitsBitForBit) {
  const TemporaryDirectory directory;
  const ExportReport report = export_model({golden_directory(GetParam()) / "model", directory / "out"});
  EXPECT_TRUE(contains(report.check, "bit for bit")) << report.check;
}

TEST_P(Export, InSmallShardsItIsTheSameModel) {
  const TemporaryDirectory directory;
  const fs::path source = golden_directory(GetParam()) / "model";
  ExportRequest request{source, directory / "out"};
  request.max_shard_bytes = 8'000;
  EXPECT_TRUE(contains(export_model(request).check, "bit for bit"));
  EXPECT_FALSE(fs::exists(directory / "out/model.safetensors"));
  const auto index = nlohmann::json::parse(read_file(directory / "out/model.safetensors.index.json"));
  const ModelWeights weights = read_model_weights(directory / "out");
  EXPECT_EQ(index["metadata"]["total_size"], weights.total_bytes());
  EXPECT_EQ(index["weight_map"].size(), weights.tensors.size());
  EXPECT_GT(weights.files.size(), 1u);
  for (const SafetensorsFile& file : weights.files) {
    size_t bytes = 0;
    for (const auto& [name, view] : file.tensors) bytes += view.nbytes;
    EXPECT_TRUE(bytes <= 8'000 || file.tensors.size() == 1) << file.mapping->path();
  }
}

TEST_P(Export, HalfTypesAreWithinTheirBound) {
  const TemporaryDirectory directory;
  const fs::path source = golden_directory(GetParam()) / "model";
  for (const auto& [dtype, name] : {std::pair(Dtype::bf16, "bfloat16"), {Dtype::f16, "float16"}}) {
    const ExportReport report = export_as(source, directory / name, dtype);
    EXPECT_TRUE(contains(report.check, "limit")) << report.check;
    EXPECT_EQ(read_model_config(directory / name)["torch_dtype"], name);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Export,
                         ::testing::Values("t5_v1_0", "t5_v1_1", "umt5", "qwen2", "qwen3", "llama_31",
                                           "mistral", "gemma2", "gemma3", "phi3", "granite"),
                         [](const auto& info) { return info.param; });

TEST(ExportModel, ATiedHeadIsNotWrittenTwice) {
  const TemporaryDirectory directory;
  const fs::path source = golden_directory("qwen2") / "model";
  fs::copy(source, directory / "model");
  const ModelWeights weights = read_model_weights(source);
  std::map<std::string, TensorView> views = weights.tensors;
  views["lm_head.weight"] = views.at("model.embed_tokens.weight");
  write_model_weights(directory / "model", sources_of(views));
  export_model({directory / "model", directory / "out"});
  EXPECT_FALSE(read_model_weights(directory / "out").tensors.contains("lm_head.weight"));
}

TEST(ExportModel, Fp16BeyondItsRangeNamesTheTensor) {
  const TemporaryDirectory directory;
  const std::string name = "model.layers.1.mlp.up_proj.weight";
  copy_with(golden_directory("llama") / "model", directory / "model", name, 70000.0f);
  const std::string message =
      error_message<FormatError>([&] { export_as(directory / "model", directory / "out", Dtype::f16); });
  EXPECT_TRUE(contains(message, name)) << message;
  EXPECT_TRUE(contains(message, "65504")) << message;
  EXPECT_EQ(directory.names(), std::set<std::string>{"model"});
}

TEST(ExportModel, AModelThatDivergedIsNotExported) {
  const TemporaryDirectory directory;
  copy_with(golden_directory("llama") / "model", directory / "model", "model.norm.weight", NAN);
  EXPECT_TRUE(contains(error_message<FormatError>([&] {
                         export_model({directory / "model", directory / "out"});
                       }),
                       "not finite"));
  EXPECT_EQ(directory.names(), std::set<std::string>{"model"});
}

TEST(ExportModel, AnAdapterAloneStaysAnAdapter) {
  const TemporaryDirectory directory;
  ExportRequest request{golden_directory("qwen2_dora") / "adapter", directory / "out"};
  request.adapter_only = true;
  EXPECT_TRUE(contains(export_model(request).check, "bit for bit"));
  EXPECT_FALSE(fs::exists(directory / "out/model.safetensors"));
  EXPECT_EQ(read_adapter_weights(directory / "out").tensors.size(),
            read_adapter_weights(request.source).tensors.size());
  request.source = golden_directory("qwen2") / "model";
  request.out = directory / "other";
  EXPECT_TRUE(contains(error_message<ConfigError>([&] { export_model(request); }), "not an adapter"));
}

TEST(ExportModel, WhicheverWriteFailsNothingStays) {
  const TemporaryDirectory directory(test::memory_path());
  const fs::path source = golden_directory("qwen2_lora") / "adapter";
  const int64_t operations = test::operations_of([&] { export_model({source, directory / "whole"}); });
  EXPECT_GT(operations, 10);
  for (int64_t n = 1; n <= operations; n++) {
    for (const FileFault& fault :
         {FileFault{n, FaultKind::error, ENOSPC, true}, FileFault{n, FaultKind::error, EIO}}) {
      const TemporaryDirectory scratch(test::memory_path());
      bool done = false;
      try {
        const test::FileFaultScope scope(fault);
        export_model({source, scratch / "out"});
        done = true;
      } catch (const FormatError&) {
      }
      // What only could not be synced, or removed, is there whole.
      if (scratch.names().contains("out")) {
        EXPECT_EQ(read_model_weights(scratch / "out").tensors.size(),
                  read_model_weights(directory / "whole").tensors.size())
            << test::name_of(fault);
      } else {
        EXPECT_FALSE(done) << test::name_of(fault);
      }
    }
  }
}

// GGUF needs a tokenizer, which the golden models have not: three tokens, cut as GPT-2 does.
fs::path with_tokenizer(const std::string& golden, const fs::path& to) {
  fs::copy(golden_directory(golden) / "model", to);
  write_atomically(to / "tokenizer.json", R"({"version": "1.0", "added_tokens": [], "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
    "post_processor": null, "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})");
  return to;
}

class ExportGguf : public ::testing::TestWithParam<std::string> {};

TEST_P(ExportGguf, EveryTypeReadsBackAsTheModel) {
  const TemporaryDirectory directory;
  const fs::path model = with_tokenizer(GetParam(), directory / "model");
  for (GgufType type : {GgufType::f32, GgufType::f16, GgufType::bf16, GgufType::q8_0}) {
    const fs::path out = directory / (gguf_type_name(type) + ".gguf");
    const ExportReport report = export_gguf({model, out}, type);
    EXPECT_TRUE(contains(report.check, "all")) << report.check;
    const GgufFile file = read_gguf(out);
    const bool fused = GetParam() == std::string("phi3");
    EXPECT_EQ(file.tensors.at(fused ? "blk.0.attn_qkv.weight" : "blk.0.attn_q.weight").type, type);
    EXPECT_EQ(file.tensors.at("output_norm.weight").type, GgufType::f32);
    // Its rows of 40 or 28 values are no blocks.
    EXPECT_EQ(file.tensors.at("blk.0.ffn_down.weight").type, type == GgufType::q8_0 ? GgufType::f16 : type);
  }
  EXPECT_EQ(directory.names().size(), 5u);
}

INSTANTIATE_TEST_SUITE_P(Models, ExportGguf,
                         ::testing::Values("llama", "mistral", "qwen2", "qwen3", "phi3", "granite"),
                         [](const auto& info) { return info.param; });

// Hugging Face pairs row i of a head with row i + head_dim / 2; readers of `llama` pair neighbours.
TEST(ExportGgufLayout, OnlyLlamasQueriesAndKeysAreReordered) {
  const TemporaryDirectory directory;
  for (const auto& [golden, second_row] : {std::pair("llama", 4), {"qwen2", 1}}) {
    const fs::path model = with_tokenizer(golden, directory / golden),
                   out = directory / (golden + std::string(".gguf"));
    export_gguf({model, out}, GgufType::f32);
    const GgufFile file = read_gguf(out);
    const ModelWeights weights = read_model_weights(model);
    const auto row = [](const auto* data, int64_t index) {
      return std::string(reinterpret_cast<const char*>(data) + index * 32 * 4, 32 * 4);
    };
    const auto* source = weights.tensors.at("model.layers.1.self_attn.k_proj.weight").data;
    const auto* written = file.tensors.at("blk.1.attn_k.weight").data;
    EXPECT_EQ(row(written, 0), row(source, 0));
    EXPECT_EQ(row(written, 1), row(source, second_row));
    EXPECT_EQ(row(written, 8), row(source, 8));  // the second head
    EXPECT_EQ(row(file.tensors.at("blk.1.attn_v.weight").data, 1),
              row(weights.tensors.at("model.layers.1.self_attn.v_proj.weight").data, 1));
  }
}

// llama.cpp, convert_hf_to_gguf.py: Phi3MiniModel.
TEST(ExportGgufLayout, Phi3HasItsLayersAsTheyAreAndBothListsOfFactors) {
  const TemporaryDirectory directory;
  const fs::path model = with_tokenizer("phi3", directory / "model"), out = directory / "out.gguf";
  export_gguf({model, out}, GgufType::f32);
  const GgufFile file = read_gguf(out);
  const ModelWeights weights = read_model_weights(model);
  for (const auto& [ours, theirs] :
       {std::pair("self_attn.qkv_proj", "attn_qkv"), {"mlp.gate_up_proj", "ffn_up"}}) {
    const TensorView& source = weights.tensors.at(concat("model.layers.1.", ours, ".weight"));
    const GgufTensor& written = file.tensors.at(concat("blk.1.", theirs, ".weight"));
    ASSERT_EQ(written.shape, source.shape);
    EXPECT_EQ(std::memcmp(written.data, source.data, source.nbytes), 0) << ours;
  }
  const nlohmann::json rope = read_model_config(model)["rope_scaling"];
  for (const char* length : {"short", "long"}) {
    const GgufTensor& factors = file.tensors.at(concat("rope_factors_", length, ".weight"));
    const auto* values = reinterpret_cast<const float*>(factors.data);
    const auto expected = rope[concat(length, "_factor")].get<std::vector<float>>();
    EXPECT_EQ(std::vector<float>(values, values + factors.shape[0]), expected);
  }
}

// Readers do not multiply the decoder's outputs by the root of 1 / d_model, so the head has it.
TEST(ExportGgufLayout, AT5HasTwoStacksAndAScaledHead) {
  const TemporaryDirectory directory;
  const fs::path model = with_tokenizer("t5_v1_0", directory / "model"), out = directory / "out.gguf";
  export_gguf({model, out}, GgufType::f32);
  const GgufFile file = read_gguf(out);
  EXPECT_EQ(std::get<uint32_t>(file.metadata.at("t5.block_count")), 1u);
  EXPECT_EQ(std::get<uint32_t>(file.metadata.at("t5.decoder_block_count")), 2u);
  for (const char* name : {"enc.blk.0.attn_rel_b.weight", "dec.blk.1.cross_attn_q.weight",
                           "dec.blk.0.ffn_up.weight", "enc.output_norm.weight"})
    EXPECT_TRUE(file.tensors.contains(name)) << name;
  const auto values_of = [&](const char* name) {
    const GgufTensor& tensor = file.tensors.at(name);
    return read_gguf_values(tensor, 0, tensor.shape[0]);
  };
  EXPECT_TRUE(values_of("output.weight").allclose(values_of("token_embd.weight") / std::sqrt(32.0), 1e-6, 0));
}

// Gemma multiplies by 1 + weight, which readers do not know, and takes another scale of scores than readers,
// here 20^-0.5 instead of that of head_dim 12.
TEST(ExportGgufLayout, GemmasNormsAndQueriesAreStoredAsReadersMultiply) {
  const TemporaryDirectory directory;
  const fs::path model = with_tokenizer("gemma2", directory / "model"), out = directory / "out.gguf";
  export_gguf({model, out}, GgufType::f32);
  const GgufFile file = read_gguf(out);
  const ModelWeights weights = read_model_weights(model);
  const auto written = [&](const char* name) {
    const GgufTensor& tensor = file.tensors.at(name);
    return read_gguf_values(tensor, 0, tensor.shape[0]).squeeze(-1);
  };
  EXPECT_TRUE(written("blk.1.post_ffw_norm.weight")
                  .equal(tensor_of(weights, "model.layers.1.post_feedforward_layernorm.weight") + 1));
  EXPECT_TRUE(
      written("blk.1.attn_q.weight")
          .allclose(tensor_of(weights, "model.layers.1.self_attn.q_proj.weight") * std::sqrt(12.0 / 20),
                    1e-6));
}

TEST(ExportGgufRefusals, WhatGgufCannotSayIsNamed) {
  const TemporaryDirectory directory;
  for (const auto& [golden, word] : {std::pair("t5_v1_1", "relative_attention_max_distance"),
                                     {"gemma3", "layer_types"},
                                     {"llama_31", "hidden_act"},
                                     {"qwen2_yarn", "sliding_window"},
                                     {"qwen3_dynamic", "attention_bias"}}) {
    const fs::path model = with_tokenizer(golden, directory / golden);
    const std::string message = error_message<FormatError>([&] {
      export_gguf({model, directory / "out.gguf"}, std::nullopt);
    });
    EXPECT_TRUE(contains(message, word)) << message;
    EXPECT_FALSE(fs::exists(directory / "out.gguf"));
    EXPECT_FALSE(fs::exists(directory / "out.gguf.tmp"));
  }
}

TEST(ExportGgufRefusals, KeysThatReadersTakeFromAnotherLayerAreNamed) {
  nlohmann::json config = read_model_config(golden_directory("gemma4_small_lora") / "model");
  EXPECT_EQ(gguf_layout(config, false).architecture, "gemma4");
  config.erase("per_layer_config");
  config["layer_types"] = {"full_attention", "sliding_attention", "full_attention", "full_attention"};
  const std::string message = error_message<FormatError>([&] { gguf_layout(config, false); });
  EXPECT_TRUE(contains(message, "num_kv_shared_layers")) << message;
}

TEST(NewOutput, TwoAtOneTimeDoNotMix) {
  const TemporaryDirectory directory;
  for (const bool file : {true, false}) {
    const fs::path out = directory / (file ? "file" : "folder");
    NewOutput first(out, file);
    write_atomically(first.directory() / first.file().filename(), "first");
    EXPECT_TRUE(contains(error_message<FormatError>([&] { NewOutput second(out, file); }),
                         "is being written by another process"));
    first.complete();
    EXPECT_TRUE(contains(error_message<ConfigError>([&] { NewOutput second(out, file); }), "already exists"));
    EXPECT_EQ(read_file(file ? out : out / "folder"), "first");
  }
  EXPECT_EQ(directory.names(), (std::set<std::string>{"file", "folder"}));
}

TEST(NewOutput, WhatAKilledExportLeftIsCleared) {
  const TemporaryDirectory directory;
  fs::create_directories(directory / "out.tmp/old");
  NewOutput output(directory / "out", /*file=*/false);
  EXPECT_TRUE(fs::is_empty(output.directory()));
}

TEST(NewOutput, WhatAnotherMadeMeanwhileStays) {
  const TemporaryDirectory directory;
  {
    NewOutput output(directory / "out", /*file=*/false);
    fs::create_directory(directory / "out");
    write_atomically(directory / "out/theirs", "x");
    EXPECT_THROW(output.complete(), FormatError);
  }
  EXPECT_EQ(read_file(directory / "out/theirs"), "x");
  EXPECT_EQ(directory.names(), std::set<std::string>{"out"});
}

TEST(NewOutput, ALinkThatLeadsNowhereIsRefusedAndStays) {
  const TemporaryDirectory directory;
  fs::create_symlink("nowhere", directory / "out");
  for (const bool file : {true, false}) {
    EXPECT_TRUE(contains(error_message<ConfigError>([&] { NewOutput(directory / "out", file); }),
                         "a link that leads nowhere"));
  }
  EXPECT_TRUE(fs::is_symlink(directory / "out"));
}

}  // namespace
}  // namespace trainer
