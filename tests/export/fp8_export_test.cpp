// Exports in FP8 as compressed-tensors has it, exports of models that are stored in FP8, and merging adapters
// that were trained on such weights.
#include <ATen/core/grad_mode.h>

#include "trainer/adapters/lora.h"
#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/export/export_model.h"
#include "trainer/formats/model_directory.h"
#include "trainer/formats/peft.h"

#include "models/golden.h"
#include "support/error_message.h"
#include "support/golden_directory.h"
#include "support/temporary_directory.h"
#include "weights/fp8_weight.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::error_message;
using test::TemporaryDirectory;

const Quantisation kFp8{.format = "fp8"};
constexpr const char* kUp = "model.layers.0.mlp.up_proj.weight";

ExportReport export_fp8(const fs::path& source, const fs::path& out) {
  ExportRequest request{source, out};
  request.quantise = kFp8;
  return export_model(request);
}

at::Tensor stored_tensor(const fs::path& model, const std::string& name) {
  const ModelWeights weights = read_model_weights(model);
  return mapped_tensor(weights.tensors.at(name), weights.mapping_of(name)).clone();
}

// The values in fp32 of all weights, and how many of them are kept in FP8.
std::map<std::string, at::Tensor> values_in(Model& model, int64_t* in_fp8 = nullptr) {
  std::map<std::string, at::Tensor> values;
  model.for_each_parameter([&](const std::string& name, Parameter& parameter) {
    values[name] = parameter.value.materialize(at::kFloat).clone();
    if (in_fp8 != nullptr && !parameter.value.is_tensor()) ++*in_fp8;
  });
  return values;
}

void expect_same_values(const std::map<std::string, at::Tensor>& a,
                        const std::map<std::string, at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, values] : a) EXPECT_TRUE(values.equal(b.at(name))) << name;
}

at::Tensor fp8_model_logits(Model& model, const Golden& golden) {
  const at::NoGradGuard no_grad;
  return model.head().logits(model.supervised_states(golden.whole(), ForwardContext{}));
}

fs::path fp8_adapter(const fs::path& base, const std::string& golden, const fs::path& to,
                     const std::map<std::string, std::string>& metadata = {}) {
  const fs::path from = golden_directory(golden) / "adapter";
  fs::create_directories(to);
  AdapterConfig config = read_adapter_config(from);
  config.base_model_name_or_path = base;
  write_adapter_config(to, config);
  write_adapter_weights(to, read_adapter_weights(from).tensors, metadata);
  return to;
}

class ExportFp8 : public testing::TestWithParam<std::string> {};

TEST_P(ExportFp8, TheExportIsTheModelAsItIsQuantisedWhileItIsLoaded) {
  const fs::path source = golden_directory(GetParam()) / "model";
  const TemporaryDirectory directory;
  const ExportReport report = export_fp8(source, directory / "out");
  EXPECT_TRUE(contains(report.difference, "before it was quantised")) << report.difference;
  EXPECT_TRUE(contains(report.check, "weights in FP8 have the model's values within a step")) << report.check;
  int64_t written = 0, quantised = 0;
  const auto values = values_in(*load_model(directory / "out", {}), &written);
  LoadOptions options;
  options.quantise = kFp8;
  expect_same_values(values, values_in(*load_model(source, options), &quantised));
  EXPECT_GT(written, 0);
  EXPECT_EQ(written, quantised);
}

INSTANTIATE_TEST_SUITE_P(Models, ExportFp8,
                         testing::Values("t5_v1_1", "qwen2", "qwen3", "llama", "gemma3", "gemma4", "phi3"),
                         [](const auto& info) { return info.param; });

// By hand, because the package compressed-tensors is no dependency: names, types and shapes of its format
// float-quantized, with the values that its definition gives.
TEST(ExportFp8Files, HaveCompressedTensorsNamesTypesShapesAndValues) {
  const TemporaryDirectory directory;
  const fs::path source = golden_directory("qwen3") / "model";
  export_fp8(source, directory / "out");
  const auto before = read_model_weights(source).tensors;
  const ModelWeights after = read_model_weights(directory / "out");
  size_t quantised = 0;
  for (const auto& [name, view] : before) {
    const TensorView& written = after.tensors.at(name);
    EXPECT_EQ(written.shape, view.shape) << name;
    if (!name.ends_with("_proj.weight")) {
      EXPECT_EQ(written.dtype, view.dtype) << name;
      continue;
    }
    quantised++;
    EXPECT_EQ(written.dtype, Dtype::f8_e4m3) << name;
    const TensorView& scales = after.tensors.at(name + "_scale");
    EXPECT_EQ(scales.dtype, Dtype::f32);
    EXPECT_EQ(scales.shape, (std::vector<int64_t>{view.shape[0], 1}));
    const at::Tensor values = stored_tensor(source, name).to(at::kFloat);
    const at::Tensor expected = values.abs().amax(1, true) / 448;
    EXPECT_TRUE(stored_tensor(directory / "out", name + "_scale").equal(expected)) << name;
    const at::Tensor codes = (values / expected).to(at::kFloat8_e4m3fn);
    EXPECT_TRUE(stored_tensor(directory / "out", name).view(at::kByte).equal(codes.view(at::kByte))) << name;
  }
  EXPECT_EQ(quantised, 14);
  EXPECT_EQ(after.tensors.size(), before.size() + quantised);
}

TEST(ExportFp8Files, TheConfigIsThatWhichVllmReads) {
  const TemporaryDirectory directory;
  export_fp8(golden_directory("llama") / "model", directory / "llama");
  const nlohmann::json config =
      nlohmann::json::parse(read_file(directory / "llama" / "config.json"))["quantization_config"];
  EXPECT_EQ(config["quant_method"], "compressed-tensors");
  EXPECT_EQ(config["format"], "float-quantized");
  EXPECT_EQ(config["quantization_status"], "compressed");
  EXPECT_EQ(config["ignore"], nlohmann::json({"lm_head"}));
  ASSERT_EQ(config["config_groups"].size(), 1);
  const nlohmann::json& group = config["config_groups"]["group_0"];
  EXPECT_EQ(group["targets"], nlohmann::json({"Linear"}));
  for (const auto& [part, strategy, dynamic] :
       {std::tuple{"weights", "channel", false}, {"input_activations", "token", true}}) {
    EXPECT_EQ(group[part]["num_bits"], 8);
    EXPECT_EQ(group[part]["type"], "float");
    EXPECT_EQ(group[part]["symmetric"], true);
    EXPECT_EQ(group[part]["strategy"], strategy);
    EXPECT_EQ(group[part]["dynamic"], dynamic);
  }
  // What is left out is named: a T5's wo.
  export_fp8(golden_directory("t5_v1_1") / "model", directory / "t5");
  const nlohmann::json ignored =
      nlohmann::json::parse(read_file(directory / "t5" / "config.json"))["quantization_config"]["ignore"];
  const auto tensors = read_model_weights(directory / "t5").tensors;
  for (const auto& entry : ignored) {
    const auto found = tensors.find(entry.get<std::string>() + ".weight");
    EXPECT_TRUE(found == tensors.end() || found->second.dtype != Dtype::f8_e4m3) << entry;
  }
  const auto is_ignored = [&](const std::string& name) {
    return std::ranges::find(ignored, nlohmann::json(name)) != ignored.end();
  };
  EXPECT_TRUE(is_ignored("lm_head"));
  EXPECT_TRUE(is_ignored("encoder.block.0.layer.1.DenseReluDense.wo"));
  EXPECT_FALSE(is_ignored("encoder.block.0.layer.1.DenseReluDense.wi_0"));
}

class ExportStoredFp8 : public testing::TestWithParam<std::string> {};

TEST_P(ExportStoredFp8, WithoutQuantizeTheWeightsAreDequantised) {
  const TemporaryDirectory directory;
  const fs::path source = golden_directory("llama_fp8") / GetParam();
  const ExportReport report = export_model({source, directory / "out"});
  EXPECT_FALSE(read_model_config(directory / "out").contains("quantization_config"));
  const auto tensors = read_model_weights(directory / "out").tensors;
  for (const auto& [name, view] : tensors) EXPECT_EQ(view.dtype, Dtype::bf16) << name;
  EXPECT_EQ(tensors.size(), 12) << "no scales are left";
  auto expected = values_in(*load_model(source, {}));
  for (auto& [name, values] : expected) values = values.to(at::kBFloat16).to(at::kFloat);
  expect_same_values(values_in(*load_model(directory / "out", {})), expected);
  EXPECT_TRUE(contains(error_message<ConfigError>([&] { export_fp8(source, directory / "again"); }),
                       "is stored in FP8 already; leave out --quantize"));
}

// Of a model, and of an adapter on it: what is quantised is the values that its codes stand for.
TEST_P(ExportStoredFp8, ItIsQuantisedAgainInAnotherFormat) {
  const TemporaryDirectory directory;
  const fs::path stored = golden_directory("llama_fp8") / GetParam(), dense = directory / "dense";
  ExportRequest dequantised{stored, dense};
  dequantised.dtype = Dtype::f32;
  export_model(dequantised);
  const auto export_nf4 = [&](const fs::path& base, const std::string& name, bool with_adapter) {
    fs::path from = base;
    if (with_adapter) {
      from = directory / (name + "_adapter");
      fs::create_directories(from);
      AdapterConfig config = read_adapter_config(golden_directory("llama_fp8") / "adapter");
      config.base_model_name_or_path = base;
      write_adapter_config(from, config);
      fs::copy_file(golden_directory("llama_fp8") / "adapter" / "adapter_model.safetensors",
                    from / "adapter_model.safetensors");
    }
    ExportRequest request{from, directory / (name + (with_adapter ? "_merged" : "_model"))};
    request.dtype = Dtype::f32;
    request.quantise = Quantisation{.format = "nf4"};
    EXPECT_TRUE(contains(export_model(request).check, "7 weights in NF4"));
    return values_in(*load_model(request.out, {}));
  };
  for (const bool with_adapter : {false, true})
    expect_same_values(export_nf4(stored, "stored", with_adapter), export_nf4(dense, "dense", with_adapter));
}

// Weights that the adapter does not change keep their codes if compressed-tensors can say how they are
// scaled.
TEST_P(ExportStoredFp8, AnAdapterIsMergedAndQuantisedByRows) {
  const TemporaryDirectory directory;
  const fs::path source = golden_directory("llama_fp8") / GetParam(), adapter = directory / "adapter";
  fs::create_directories(adapter);
  AdapterConfig config = read_adapter_config(golden_directory("llama_fp8") / "adapter");
  config.base_model_name_or_path = source;
  config.target_modules =
      std::vector<std::string>{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "down_proj"};
  write_adapter_config(adapter, config);
  std::map<std::string, TensorView> part;  // of all but up_proj
  const SafetensorsFile whole = read_adapter_weights(golden_directory("llama_fp8") / "adapter");
  for (const auto& [name, view] : whole.tensors)
    if (name.find("up_proj") == std::string::npos) part[name] = view;
  write_adapter_weights(adapter, part, {});
  const ExportReport report = export_fp8(adapter, directory / "out");
  EXPECT_TRUE(contains(report.check, "7 weights in FP8")) << report.check;
  const at::Tensor scales = stored_tensor(directory / "out", std::string(kUp) + "_scale");
  EXPECT_EQ(scales.size(0), 264);
  const bool kept =
      stored_tensor(source, kUp).view(at::kByte).equal(stored_tensor(directory / "out", kUp).view(at::kByte));
  EXPECT_EQ(kept, GetParam() != "block");
}

INSTANTIATE_TEST_SUITE_P(Forms, ExportStoredFp8, testing::Values("channel", "block", "tensor"),
                         [](const auto& info) { return info.param; });

TEST(MergeOnFp8, AnAdapterRemembersThatItsBaseWasInFp8) {
  const TemporaryDirectory directory;
  const Golden golden("llama_lora");
  const fs::path original = golden.directory / "model";
  EXPECT_EQ(trained_on(kFp8), "fp8");
  const fs::path adapter = fp8_adapter(original, "llama_lora", directory / "adapter", {{kTrainedOn, "fp8"}});
  int64_t in_fp8 = 0;
  const auto trained = load_model_or_adapter(adapter, {});
  values_in(*trained, &in_fp8);
  EXPECT_EQ(in_fp8, 14);
  // Onto the original weights, unless asked otherwise.
  export_model({adapter, directory / "original"});
  export_model({golden.directory / "adapter", directory / "expected"});
  expect_same_values(values_in(*load_model(directory / "original", {})),
                     values_in(*load_model(directory / "expected", {})));
  ExportRequest request{adapter, directory / "dequantised"};
  request.dequantised = true;
  export_model(request);
  const at::Tensor logits = fp8_model_logits(*load_model(directory / "dequantised", {}), golden);
  EXPECT_LE(relative_error(logits, fp8_model_logits(*trained, golden)), 1e-5);
}

}  // namespace
}  // namespace trainer
