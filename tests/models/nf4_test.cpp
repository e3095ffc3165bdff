// Models in NF4, compared with Transformers, bitsandbytes and PEFT (tests/make_goldens/nf4_models), and the
// errors for stored ones that are damaged.
#include <cstring>
#include <fstream>

#include <ATen/core/grad_mode.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/nn/linear.h"

#include "formats/bitsandbytes.h"
#include "models/golden.h"
#include "models/weight_placement.h"
#include "support/counting_allocator.h"
#include "support/error_message.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::error_message;

at::Tensor logits_of(const Golden& golden) {
  const at::NoGradGuard no_grad;
  return golden.model->head()
      .logits(golden.model->supervised_states(golden.whole(), ForwardContext{}))
      .to(at::kFloat);
}

// Codes, scales and nested scales of each weight that is no plain tensor, by the module's name.
std::map<std::string, std::vector<at::Tensor>> nf4_of(Model& model) {
  std::map<std::string, std::vector<at::Tensor>> found;
  model.for_each_module([&](const std::string& name, Module& module) {
    const auto* linear = dynamic_cast<Linear*>(&module);
    if (linear != nullptr && !linear->weight.value.is_tensor()) found[name] = linear->weight.value.tensors();
  });
  return found;
}

ForwardContext with_anchor() {
  ForwardContext context;
  context.anchor = at::zeros({1}).set_requires_grad(true);
  return context;
}

// The relative 2-norm error over all gradients together.
double gradient_error(const Golden& golden, const std::map<std::string, at::Tensor>& gradients) {
  double off = 0, size = 0;
  for (const auto& [name, gradient] : gradients) {
    const at::Tensor expected = golden.expected("grad." + name).to(at::kDouble);
    off += (gradient.to(at::kDouble) - expected).square().sum().item<double>();
    size += expected.square().sum().item<double>();
  }
  return std::sqrt(off / size);
}

class Nf4Model : public testing::TestWithParam<std::string> {};

TEST_P(Nf4Model, LogitsLossAndGradientsAreThoseOfBitsandbytes) {
  for (const char* form : {"model", "stored"}) {
    SCOPED_TRACE(form);
    const auto quantise = form == std::string("model") ? std::optional(Quantisation{}) : std::nullopt;
    const Golden golden(GetParam(), at::kFloat, quantise, form);
    EXPECT_LE(relative_error(logits_of(golden), golden.expected("logits")), 1e-5);
    double loss = 0;
    const auto gradients = golden.gradients(golden.one_cut(), with_anchor(), &loss);
    EXPECT_NEAR(loss, golden.expected("loss").item<double>(), 1e-5 * loss);
    EXPECT_GT(gradients.size(), 20);
    for (const auto& [name, gradient] : gradients)
      EXPECT_LE(relative_error(gradient, golden.expected("grad." + name)), 1e-5) << name;
  }
}

TEST_P(Nf4Model, InBf16ItIsNoFurtherFromFp32ThanTransformersIs) {
  const Golden golden(GetParam(), at::kBFloat16, Quantisation{});
  const nlohmann::json own = golden.json("hf_bf16_error.json");
  EXPECT_LE(relative_error(logits_of(golden), golden.expected("logits")), 1.5 * own["logits"].get<double>());
  const auto gradients = golden.gradients(golden.one_cut(), with_anchor());
  EXPECT_LE(gradient_error(golden, gradients), 1.5 * own["grads"].get<double>());
}

TEST_P(Nf4Model, WhatIsQuantisedWhileLoadingIsWhatTransformersStores) {
  const fs::path directory = golden_directory(GetParam());
  const auto ours = load_model(directory / "model", {at::kCPU, at::kBFloat16, false, Quantisation{}});
  const auto stored = load_model(directory / "stored", {at::kCPU, at::kBFloat16, false});
  const auto a = nf4_of(*ours), b = nf4_of(*stored);
  EXPECT_GE(a.size(), 12);  // four for each layer of the smallest, whose projections are fused
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensors] : a) {
    ASSERT_TRUE(b.contains(name)) << name;
    ASSERT_EQ(tensors.size(), 3) << name;
    for (size_t i = 0; i < tensors.size(); i++) EXPECT_TRUE(tensors[i].equal(b.at(name)[i])) << name << i;
  }
}

TEST_P(Nf4Model, APlanHasTheTensorsOfTheModel) {
  const fs::path directory = golden_directory(GetParam());
  const auto compare = [](Model& real, Model& planned) {
    std::map<std::string, int64_t> bytes;
    real.for_each_parameter([&](const std::string& name, Parameter& p) { bytes[name] = p.value.nbytes(); });
    planned.for_each_parameter(
        [&](const std::string& name, Parameter& p) { EXPECT_EQ(p.value.nbytes(), bytes.at(name)) << name; });
  };
  for (const bool nested : {false, true}) {
    const Quantisation quantise{nested};
    compare(*load_model(directory / "model", {at::kCPU, at::kBFloat16, false, quantise}),
            *model_on_meta(directory / "model", at::kBFloat16, false, quantise));
  }
  compare(*load_model(directory / "stored", {at::kCPU, at::kBFloat16, false}),
          *model_on_meta(directory / "stored", at::kBFloat16, false));
}

INSTANTIATE_TEST_SUITE_P(Families, Nf4Model,
                         testing::Values("llama_nf4", "qwen2_nf4", "phi3_nf4", "t5_v1_1_nf4"),
                         [](const auto& param) { return param.param; });

TEST(LoadNf4, LeavesOutTheHeadAndWhatIsToStayDense) {
  const auto names = [](const std::string& golden, const Quantisation& quantise) {
    const auto model =
        load_model(golden_directory(golden) / "model", {at::kCPU, at::kFloat, false, quantise});
    std::vector<std::string> out;
    for (const auto& [name, tensors] : nf4_of(*model)) out.push_back(name);
    return out;
  };
  EXPECT_EQ(names("llama", {}).size(), 14);  // 7 in each of 2 layers
  EXPECT_EQ(names("llama", {true, {"layers.0.mlp.up_proj", "o_proj"}}).size(), 11);
  for (const std::string& name : names("t5_v1_1", {})) EXPECT_FALSE(name.ends_with("wo")) << name;
}

TEST(LoadNf4, FullFineTuningIsRefused) {
  const fs::path directory = golden_directory("llama_nf4");
  const std::string asked = error_message<ConfigError>([&] {
    load_model(directory / "model", {at::kCPU, at::kFloat, true, Quantisation{}});
  });
  EXPECT_TRUE(contains(asked, "model.quantize: weights in 4 bits cannot be trained; add a lora section"))
      << asked;
  const std::string stored = error_message<ConfigError>([&] {
    load_model(directory / "stored", {at::kCPU, at::kFloat, true});
  });
  EXPECT_TRUE(contains(stored, "stored in NF4 (quantization_config), and cannot be trained")) << stored;
}

// The codes take an eighth of the file; of a wide tensor never more than a piece is converted.
TEST(LoadNf4, TheModelIsNeverInMemoryTwice) {
  const test::TemporaryDirectory directory;
  fs::copy(golden_directory("llama_nf4") / "model", directory.path(), fs::copy_options::recursive);
  const CountsAllocations counts;
  CountingAllocator& allocator = CountingAllocator::instance();
  const int64_t before = allocator.in_use();
  allocator.reset_peak();
  LoadReport report;
  const auto model = load_model(directory.path(), {at::kCPU, at::kBFloat16, false, Quantisation{}}, &report);
  const int64_t largest = 128 * 64;
  EXPECT_GT(report.quantised_bytes, 0);
  // What stays; of the tensor in the works its values in fp32 and its scales.
  EXPECT_LE(allocator.peak() - before, report.quantised_bytes + largest * 4 + largest / 64 * 8 + 64 * 100);
}

class StoredNf4Files : public testing::Test {
 protected:
  void SetUp() override { start_again(); }
  void start_again() {
    for (const char* file : {"config.json", "model.safetensors"}) {
      fs::copy_file(golden_directory("llama_nf4") / "stored" / file, directory_.path() / file,
                    fs::copy_options::overwrite_existing);
    }
    weights_ = read_safetensors(directory_.path() / "model.safetensors");
  }
  std::string error() {
    write_safetensors(directory_.path() / "new", weights_.tensors);
    fs::rename(directory_.path() / "new", directory_.path() / "model.safetensors");
    return error_message<FormatError>([&] { load_model(directory_.path(), {}); });
  }
  TensorView& part(const std::string& suffix) { return weights_.tensors.at(kWeight + suffix); }
  void put_state(const nlohmann::json& changes) {
    TensorView& view = part(kNf4State);
    nlohmann::json state =
        nlohmann::json::parse(std::string(reinterpret_cast<const char*>(view.data), view.nbytes));
    state.update(changes);
    state_ = state.dump();
    view = {Dtype::u8,
            {static_cast<int64_t>(state_.size())},
            reinterpret_cast<std::byte*>(state_.data()),
            state_.size()};
  }
  static void put_float(TensorView& view, float value) { std::memcpy(view.data, &value, sizeof value); }

  static constexpr const char* kName = "model.layers.0.mlp.up_proj.weight";
  const std::string kWeight = kName;
  test::TemporaryDirectory directory_;
  SafetensorsFile weights_;
  std::string state_;
};

TEST_F(StoredNf4Files, AllThatIsWrongIsInOneError) {
  weights_.tensors.erase(kWeight + kNf4NestedScales);
  weights_.tensors.erase("model.layers.1.mlp.down_proj.weight.quant_map");
  put_float(weights_.tensors.at("model.layers.0.self_attn.q_proj.weight.nested_absmax"), NAN);
  weights_.tensors.erase("model.layers.1.self_attn.k_proj.weight.quant_state.bitsandbytes__nf4");
  const std::string message = error();
  EXPECT_TRUE(contains(message, concat("missing: ", kName, ".nested_absmax"))) << message;
  EXPECT_TRUE(contains(message, "missing: model.layers.1.mlp.down_proj.weight.quant_map")) << message;
  EXPECT_TRUE(
      contains(message, "damaged: model.layers.0.self_attn.q_proj.weight: nested_absmax: has a scale"))
      << message;
  EXPECT_TRUE(
      contains(message, "missing: model.layers.1.self_attn.k_proj.weight.quant_state.bitsandbytes__nf4"))
      << message;
}

TEST_F(StoredNf4Files, StatesThatMeanSomethingElseAreRefused) {
  const std::vector<std::pair<nlohmann::json, std::string>> cases{
      {{{"blocksize", 128}}, "blocksize: expected 64, found 128"},
      {{{"quant_type", "fp4"}}, "quant_type: expected \"nf4\", found \"fp4\""},
      {{{"shape", {64, 128}}},
       "misshapen: model.layers.0.mlp.up_proj.weight: expected [128, 64], found [64,128]"},
      {{{"nested_blocksize", 512}}, "nested_blocksize: expected 256"},
      {{{"nested_offset", "x"}}, "nested_offset: is no number"},
      {{{"nested_dtype", "float16"}}, "nested_dtype: expected \"float32\""}};
  for (const auto& [changes, expected] : cases) {
    start_again();
    put_state(changes);
    const std::string message = error();
    EXPECT_TRUE(contains(message, expected)) << changes << ": " << message;
  }
}

TEST_F(StoredNf4Files, DamagedPartsAreNamed) {
  TensorView& codes = part("");
  codes.shape = {codes.shape[0] - 1, 1};
  codes.nbytes -= 1;
  EXPECT_TRUE(contains(error(), "expected 4096 bytes of codes, found 4095"));
  start_again();
  TensorView& scales = part(kNf4Scales);
  scales.dtype = Dtype::i8;
  EXPECT_TRUE(contains(error(), "absmax: expected 128 numbers of type U8, found [128] of type I8"));
  start_again();
  put_float(part(kNf4Map), 0.5f);
  EXPECT_TRUE(contains(error(), "quant_map: code 0 means 0.5 there, and -1 in bitsandbytes"));
  start_again();
  part(kNf4State).data[0] = std::byte{'x'};
  EXPECT_TRUE(contains(error(), concat("damaged: ", kName, ": quant_state.bitsandbytes__nf4")));
}

TEST_F(StoredNf4Files, CodesMayBeStoredAsAnotherType) {
  const at::Tensor expected =
      nf4_of(*load_model(directory_.path(), {})).at("model.layers.0.mlp.up_proj")[0].clone();
  TensorView& codes = part("");
  codes = {Dtype::bf16, {codes.shape[0] / 2, 1}, codes.data, codes.nbytes};
  write_safetensors(directory_.path() / "new", weights_.tensors);
  fs::rename(directory_.path() / "new", directory_.path() / "model.safetensors");
  const auto model = load_model(directory_.path(), {});
  EXPECT_TRUE(nf4_of(*model).at("model.layers.0.mlp.up_proj")[0].equal(expected));
}

// A tensor of codes beside the others, as every quantised model has.
void add_codes(const fs::path& directory) {
  std::vector<uint8_t> codes(8);
  SafetensorsFile file = read_safetensors(directory / "model.safetensors");
  file.tensors["model.layers.0.mlp.up_proj.codes"] = {
      Dtype::u8, {8}, reinterpret_cast<std::byte*>(codes.data()), codes.size()};
  write_safetensors(directory / "new", file.tensors);
  fs::rename(directory / "new", directory / "model.safetensors");
}

TEST(LoadNf4, OtherQuantisationsAreRefusedByName) {
  const std::vector<std::pair<nlohmann::json, std::string>> cases{
      {{{"quant_method", "gptq"}, {"bits", 4}}, "quant_method gptq"},
      {{{"quant_method", "awq"}}, "quant_method awq"},
      {{{"quant_method", "modelopt"}}, "quant_method modelopt"},
      {{{"quant_method", "bitsandbytes"}, {"load_in_8bit", true}}, "int8 (load_in_8bit)"},
      {{{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}}, "bnb_4bit_quant_type fp4"},
      {{{"load_in_4bit", true}, {"bnb_4bit_quant_type", "fp4"}}, "bnb_4bit_quant_type fp4"}};
  for (const auto& [stored, expected] : cases) {
    const test::TemporaryDirectory directory;
    fs::copy(golden_directory("llama") / "model", directory.path(), fs::copy_options::recursive);
    std::ifstream in(directory / "config.json");
    nlohmann::json config = nlohmann::json::parse(in);
    config["quantization_config"] = stored;
    std::ofstream(directory / "config.json") << config;
    add_codes(directory.path());
    const std::string message = error_message<FormatError>([&] { load_model(directory.path(), {}); });
    EXPECT_TRUE(contains(
        message, concat("quantization_config: ", expected, " is not supported; use the model without")))
        << message;
  }
}

TEST(LoadNf4, AQuantisationWithoutAMethodIsRefused) {
  for (const nlohmann::json& stored : {nlohmann::json::object(), nlohmann::json{{"bits", 4}}}) {
    const std::string message = error_message<FormatError>([&] {
      read_quantization_config({{"quantization_config", stored}});
    });
    EXPECT_TRUE(contains(message, "quantization_config: has no quant_method; if the weights are not"))
        << message;
  }
}

// should_convert_module() of Transformers.
TEST(LoadNf4, SkippedModulesAreMatchedAsTransformersDoes) {
  EXPECT_TRUE(is_skipped("model.layers.1.mlp", {"model.layers.1"}));
  EXPECT_FALSE(is_skipped("model.layers.11.mlp", {"model.layers.1"}));
  EXPECT_TRUE(is_skipped("model.layers.11.mlp.gate", {"model.layers.*.gate"}));
  EXPECT_FALSE(is_skipped("model.layers.11.mlp.gate_proj", {"model.layers.1.mlp.gate"}));
  EXPECT_TRUE(is_skipped("model.layers.3.fc1", {"fc1"}));
  EXPECT_TRUE(is_skipped("decoder.block.0.layer.2.DenseReluDense.wo", {"wo"}));
}

}  // namespace
}  // namespace trainer
