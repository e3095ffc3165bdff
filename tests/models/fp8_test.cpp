// Models in FP8: those that are stored so, compared with plain PyTorch (tests/make_goldens/fp8_models), those
// that are quantised while they are loaded, and the errors for damaged ones.
#include "ops/fp8.h"

#include <cmath>
#include <cstring>
#include <fstream>

#include <ATen/core/grad_mode.h>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/strings.h"
#include "trainer/nn/linear.h"

#include "models/golden.h"
#include "support/counting_allocator.h"
#include "support/error_message.h"
#include "support/reference.h"
#include "support/temporary_directory.h"
#include "weights/fp8_weight.h"
#include "weights/weight_format.h"
#include "weights/weight_products.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::error_message;

const Quantisation kInFp8{.format = "fp8"};

at::Tensor fp8_logits(const Golden& golden) {
  const at::NoGradGuard no_grad;
  return golden.model->head()
      .logits(golden.model->supervised_states(golden.whole(), ForwardContext{}))
      .to(at::kFloat);
}

ForwardContext anchored() {
  ForwardContext context;
  context.anchor = at::zeros({1}).set_requires_grad(true);
  return context;
}

// The parameters that are kept in FP8.
std::map<std::string, Parameter*> parameters_in_fp8(Model& model) {
  std::map<std::string, Parameter*> found;
  model.for_each_parameter([&](const std::string& name, Parameter& parameter) {
    if (const WeightSource* source = parameter.value.source()) {
      EXPECT_EQ(source->format(), &fp8_format()) << name;
      found[name] = &parameter;
    }
  });
  return found;
}

void expect_planned_bytes(Model& real, Model& planned) {
  std::map<std::string, int64_t> bytes;
  real.for_each_parameter([&](const std::string& name, Parameter& p) { bytes[name] = p.value.nbytes(); });
  planned.for_each_parameter(
      [&](const std::string& name, Parameter& p) { EXPECT_EQ(p.value.nbytes(), bytes.at(name)) << name; });
}

class StoredFp8Model : public testing::TestWithParam<std::string> {};

TEST_P(StoredFp8Model, LogitsLossAndGradientsAreThoseOfItsDequantisedWeights) {
  const Golden golden("llama_fp8", at::kFloat, std::nullopt, GetParam());
  const auto expected = [&](const std::string& name) { return golden.expected(GetParam() + "." + name); };
  const auto in_fp8 = parameters_in_fp8(*golden.model);
  EXPECT_EQ(in_fp8.size(), 7);
  const Weight& k_proj = in_fp8.at("model.layers.0.self_attn.k_proj.weight")->value;
  EXPECT_TRUE(k_proj.materialize(at::kFloat).equal(expected("k_proj")));
  EXPECT_LE(relative_error(fp8_logits(golden), expected("logits")), 1e-5);
  double loss = 0;
  const auto gradients = golden.gradients(golden.one_cut(), anchored(), &loss);
  EXPECT_NEAR(loss, expected("loss").item<double>(), 1e-5 * loss);
  EXPECT_EQ(gradients.size(), 14);
  for (const auto& [name, gradient] : gradients)
    EXPECT_LE(relative_error(gradient, expected("grad." + name)), 1e-5) << name;
}

TEST_P(StoredFp8Model, StaysInTheFileAndIsPlannedToTheByte) {
  const fs::path directory = golden_directory("llama_fp8") / GetParam();
  LoadReport report;
  const auto model = load_model(directory, {at::kCPU, at::kBFloat16, false}, &report);
  expect_planned_bytes(*model, *model_on_meta(directory, at::kBFloat16, false));
  EXPECT_EQ(report.quantised, 7);
  EXPECT_TRUE(contains(report.line(), "7 matrices kept in FP8")) << report.line();
  EXPECT_GE(report.mapped_bytes, report.quantised_bytes * 9 / 10);
  // Without files config.json tells how scales lie.
  const test::TemporaryDirectory only_config;
  fs::copy_file(directory / "config.json", only_config / "config.json");
  expect_planned_bytes(*model, *model_on_meta(only_config.path(), at::kBFloat16, false));
}

INSTANTIATE_TEST_SUITE_P(Forms, StoredFp8Model, testing::Values("channel", "block", "tensor"),
                         [](const auto& param) { return param.param; });

// The same adapters on weights in FP8, and on their values as plain tensors.
TEST(Fp8Model, HasTheBitsOfItsValuesAsPlainWeights) {
  for (const char* name : {"llama_lora", "t5_v1_1_lora", "phi3_lora", "qwen2_dora"}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      // DoRA's norm is that of the values in fp32, before they are rounded to bf16.
      if (std::string(name) == "qwen2_dora" && type == at::kBFloat16) continue;
      SCOPED_TRACE(testing::Message() << name << " " << type);
      const Golden in_fp8(name, type, kInFp8), plain(name, type);
      const auto weights = parameters_in_fp8(*in_fp8.model);
      EXPECT_GE(weights.size(), 8);
      plain.model->for_each_parameter([&](const std::string& weight, Parameter& parameter) {
        const auto found = weights.find(weight);
        if (found == weights.end()) return;
        const at::Tensor values = found->second->value.materialize(type);
        EXPECT_FALSE(values.equal(parameter.value.materialize(type))) << weight;
        parameter.value = Weight(values);
      });
      EXPECT_TRUE(fp8_logits(in_fp8).equal(fp8_logits(plain)));
      const auto ours = in_fp8.gradients(in_fp8.one_cut(), anchored());
      const auto expected = plain.gradients(plain.one_cut(), anchored());
      ASSERT_EQ(ours.size(), expected.size());
      for (const auto& [weight, gradient] : ours) EXPECT_TRUE(gradient.equal(expected.at(weight))) << weight;
    }
  }
}

// A weight of several panels, whose last is smaller.
TEST(Fp8Model, ProductsAreThoseOfItsValuesInFp64) {
  Random random(11);
  const auto weight = std::make_shared<Fp8Weight>(quantise_fp8("w", random.normal({1500, 3001})), at::kFloat);
  const at::Tensor x = random.normal({40, 3001}), dy = random.normal({40, 1500});
  const at::Tensor values = weight->rows(0, 1500, at::kFloat).to(at::kDouble);
  const Weight w(weight);
  EXPECT_LE(relative_difference(times_transposed(x, w, at::kFloat), x.to(at::kDouble).mm(values.t())), 1e-6);
  EXPECT_LE(relative_difference(times(dy, w, at::kFloat), dy.to(at::kDouble).mm(values)), 1e-6);
  at::Tensor sum = x.clone();
  times_into(sum, dy, w, at::kFloat);
  EXPECT_LE(relative_difference(sum, x.to(at::kDouble) + dy.to(at::kDouble).mm(values)), 1e-6);
  const at::Tensor ids = at::tensor({3, 1499, 0, 3}, at::kLong).view({2, 2});
  EXPECT_TRUE(w.look_up(ids, 0, at::kFloat).to(at::kDouble).equal(at::embedding(values, ids)));
}

TEST(LoadFp8, QuantisesByRowsInTheTypeOfTheComputationAndIsPlanned) {
  for (const char* name : {"llama", "qwen2", "t5_v1_1", "gemma3", "gemma4"}) {
    const fs::path directory = golden_directory(name) / "model";
    const auto model = load_model(directory, {at::kCPU, at::kBFloat16, false, kInFp8});
    expect_planned_bytes(*model, *model_on_meta(directory, at::kBFloat16, false, kInFp8));
    const auto dense = load_model(directory, {at::kCPU, at::kBFloat16, false});
    std::map<std::string, at::Tensor> values;
    dense->for_each_parameter([&](const std::string& weight, Parameter& parameter) {
      values[weight] = parameter.value.materialize(at::kFloat);
    });
    for (const auto& [weight, parameter] : parameters_in_fp8(*model)) {
      const at::Tensor scales = values.at(weight).abs().amax(1, true).clamp_min(1e-12f) / 448;
      const at::Tensor codes = (values.at(weight) / scales).to(at::kFloat8_e4m3fn);
      EXPECT_TRUE(parameter->value.materialize(at::kFloat).equal(codes.to(at::kFloat) * scales)) << weight;
    }
  }
}

TEST(LoadFp8, LeavesOutTheHeadEmbeddingsNormsAndWhatIsToStayDense) {
  const auto names = [](const std::string& golden, const Quantisation& quantise) {
    const auto model =
        load_model(golden_directory(golden) / "model", {at::kCPU, at::kFloat, false, quantise});
    std::set<std::string> out;
    for (const auto& [name, parameter] : parameters_in_fp8(*model)) out.insert(name);
    return out;
  };
  const auto of_llama = names("llama", kInFp8);
  EXPECT_EQ(of_llama.size(), 14);  // 7 in each of 2 layers
  for (const std::string& name : of_llama) EXPECT_TRUE(name.ends_with("_proj.weight")) << name;
  EXPECT_EQ(names("llama", {.keep_dense = {"layers.0.mlp.up_proj", "o_proj"}, .format = "fp8"}).size(), 11);
  for (const std::string& name : names("t5_v1_1", kInFp8)) EXPECT_FALSE(name.ends_with("wo.weight")) << name;
}

TEST(LoadFp8, FullFineTuningIsRefusedWithWhatToDo) {
  const std::string asked = error_message<ConfigError>([&] {
    load_model(golden_directory("llama") / "model", {at::kCPU, at::kFloat, true, kInFp8});
  });
  EXPECT_TRUE(contains(asked, "weights in 8 bits cannot be trained; add a lora section")) << asked;
  const std::string stored = error_message<ConfigError>([&] {
    load_model(golden_directory("llama_fp8") / "block", {at::kCPU, at::kFloat, true});
  });
  EXPECT_TRUE(contains(stored, "stored in FP8 (quantization_config), and cannot be trained")) << stored;
  EXPECT_TRUE(contains(stored, "trainer export MODEL OUT")) << stored;
}

// They would keep the format of the file, and take twice the memory that was asked for.
TEST(LoadFp8, AnotherFormatThanTheStoredOneIsRefusedWithWhatToDo) {
  const fs::path stored = golden_directory("llama_fp8") / "block";
  const Quantisation in_nf4{.format = "nf4"};
  const std::string message = error_message<ConfigError>([&] {
    load_model(stored, {at::kCPU, at::kFloat, false, in_nf4});
  });
  EXPECT_TRUE(contains(message, "model.quantize: nf4: the model's weights are stored in FP8")) << message;
  EXPECT_TRUE(contains(message, "trainer export MODEL OUT --quantize nf4")) << message;
  EXPECT_EQ(error_message<ConfigError>([&] { model_on_meta(stored, at::kFloat, false, in_nf4); }), message);
  EXPECT_NO_THROW(load_model(stored, {at::kCPU, at::kFloat, false, kInFp8}));
}

// Beside what stays there is at most one weight in fp32.
TEST(LoadFp8, TheModelIsNeverInMemoryTwice) {
  const fs::path directory = golden_directory("llama_nf4") / "model";
  const CountsAllocations counts;
  CountingAllocator& allocator = CountingAllocator::instance();
  const int64_t before = allocator.in_use();
  allocator.reset_peak();
  LoadReport report;
  const auto model = load_model(directory, {at::kCPU, at::kBFloat16, false, kInFp8}, &report);
  const int64_t largest = 128 * 64;
  EXPECT_GT(report.quantised_bytes, 0);
  EXPECT_LE(allocator.peak() - before, report.quantised_bytes + largest * 4 + 64 * 100);
}

class DamagedFp8Files : public testing::Test {
 protected:
  void SetUp() override { start_with("block"); }
  void start_with(const std::string& form) {
    for (const char* file : {"config.json", "model.safetensors"}) {
      fs::copy_file(golden_directory("llama_fp8") / form / file, directory_.path() / file,
                    fs::copy_options::overwrite_existing);
    }
    weights_ = read_safetensors(directory_ / "model.safetensors");
  }
  void write() {
    write_safetensors(directory_ / "new", weights_.tensors);
    fs::rename(directory_ / "new", directory_ / "model.safetensors");
  }
  std::string error() {
    write();
    const std::string message = error_message<FormatError>([&] { load_model(directory_.path(), {}); });
    EXPECT_TRUE(contains(message, "the weights do not fit config.json")) << message;
    return message;
  }
  TensorView& part(const std::string& suffix) { return weights_.tensors.at(kGate + suffix); }
  void put_bf16(TensorView& view, size_t at, float value) {
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    bits >>= 16;
    std::memcpy(view.data + 2 * at, &bits, 2);
  }

  const std::string kGate = "model.layers.0.mlp.gate_proj.weight";
  test::TemporaryDirectory directory_;
  SafetensorsFile weights_;
};

TEST_F(DamagedFp8Files, AScaleThatIsNoPositiveNumberIsNamed) {
  const std::vector<std::pair<float, std::string>> cases{
      {NAN, "NaN"}, {INFINITY, "infinite"}, {-1.0f, "negative"}, {-INFINITY, "negative"}};
  for (const auto& [value, name] : cases) {
    start_with("block");
    put_bf16(part("_scale_inv"), 3, value);
    const std::string message = error();
    EXPECT_TRUE(contains(message, concat("damaged: ", kGate, "_scale_inv: scale 3 is ", name,
                                         ", and must be a positive number\n")))
        << message;
  }
}

// Some quantisers give 0 to a block without weights.
TEST_F(DamagedFp8Files, AScaleOfZeroIsOneOfZeros) {
  for (const float zero : {0.0f, -0.0f}) {
    start_with("block");
    put_bf16(part("_scale_inv"), 3, zero);
    EXPECT_TRUE(contains(error(), concat("damaged: ", kGate,
                                         "_scale_inv: scale 3 is 0, and weights that it scales are not\n")));
    const TensorView& codes = part("");
    const int64_t columns = codes.shape[1], beside = (columns + 127) / 128;
    const int64_t top = 3 / beside * 128, left = 3 % beside * 128;
    const int64_t bottom = std::min(top + 128, codes.shape[0]), right = std::min(left + 128, columns);
    for (int64_t row = top; row < bottom; row++) {
      for (int64_t column = left; column < right; column++)
        codes.data[row * columns + column] = std::byte(column % 2 == 0 ? 0x00 : 0x80);
    }
    write();
    const auto model = load_model(directory_.path(), {});
    model->for_each_parameter([&](const std::string& name, Parameter& parameter) {
      if (name != kGate) return;
      const at::Tensor values = parameter.value.materialize(at::kFloat);
      EXPECT_TRUE(values.narrow(0, top, bottom - top).narrow(1, left, right - left).eq(0).all().item<bool>());
      EXPECT_FALSE(values.isnan().any().item<bool>());
      EXPECT_GT(values.abs().sum().item<double>(), 0);
    });
  }
}

TEST_F(DamagedFp8Files, AllThatIsWrongIsInOneError) {
  weights_.tensors.erase(kGate + "_scale_inv");
  weights_.tensors.at("model.layers.0.mlp.up_proj.weight_scale_inv").shape = {2, 3};
  TensorView& q_proj = weights_.tensors.at("model.layers.0.self_attn.q_proj.weight");
  q_proj.shape = {68, 272};
  weights_.tensors.at("model.layers.0.self_attn.k_proj.weight").dtype = Dtype::i8;
  TensorView& v_scales = weights_.tensors.at("model.layers.0.self_attn.v_proj.weight_scale_inv");
  v_scales.dtype = Dtype::i16;
  const std::string message = error();
  for (const std::string& line :
       {concat("missing: ", kGate, "_scale, the scales of a weight in FP8 (or ", kGate, "_scale_inv)"),
        std::string(
            "misshapen: model.layers.0.mlp.up_proj.weight_scale_inv: expected [3, 2] (by config.json), "
            "one scale a row or one in all, found [2, 3]"),
        std::string(
            "misshapen: model.layers.0.self_attn.q_proj.weight: expected [136, 136], found [68, 272]"),
        std::string("damaged: model.layers.0.self_attn.k_proj.weight: has scales for FP8, and is of type I8"),
        std::string(
            "damaged: model.layers.0.self_attn.v_proj.weight_scale_inv: is of type I16; scales are of "
            "type F32, BF16 or F16")})
    EXPECT_TRUE(contains(message, line)) << line << "\nin " << message;
}

TEST_F(DamagedFp8Files, AHeadInFp8IsRefused) {
  TensorView embedding = weights_.tensors.at("model.embed_tokens.weight");
  std::vector<std::byte> codes(embedding.nbytes / 2);
  weights_.tensors["lm_head.weight"] = {Dtype::f8_e4m3, embedding.shape, codes.data(), codes.size()};
  EXPECT_TRUE(contains(error(), "lm_head.weight: is of type F8_E4M3, expected F32, BF16 or F16"));
}

// vLLM's older form: X.weight_scale and X.input_scale, and no size of a block.
TEST_F(DamagedFp8Files, TheNamesOfOneScaleAWeightMayBeTheOthers) {
  start_with("tensor");
  const auto before = load_model(directory_.path(), {});
  std::map<std::string, TensorView> renamed;
  for (const auto& [name, view] : weights_.tensors) {
    std::string other = name.ends_with("_scale_inv") ? name.substr(0, name.size() - 4) : name;
    if (other.ends_with("activation_scale"))
      other.replace(other.size() - strlen("activation_scale"), std::string::npos, "input_scale");
    renamed[other] = view;
  }
  weights_.tensors = renamed;
  write();
  nlohmann::json config = nlohmann::json::parse(read_file(directory_ / "config.json"));
  config["quantization_config"] = {
      {"quant_method", "fp8"}, {"activation_scheme", "static"}, {"ignored_layers", {"lm_head"}}};
  write_atomically(directory_ / "config.json", config.dump());
  const auto after = load_model(directory_.path(), {});
  const auto a = parameters_in_fp8(*before), b = parameters_in_fp8(*after);
  ASSERT_EQ(b.size(), 7);
  for (const auto& [name, parameter] : a) {
    EXPECT_TRUE(parameter->value.materialize(at::kFloat).equal(b.at(name)->value.materialize(at::kFloat)));
  }
}

TEST_F(DamagedFp8Files, OtherKindsOfTheseMethodsAreRefusedByName) {
  const auto group = [](const nlohmann::json& weights) {
    return nlohmann::json{{"quant_method", "compressed-tensors"},
                          {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}}};
  };
  nlohmann::json rotated = group({{"num_bits", 8}, {"type", "float"}, {"strategy", "channel"}});
  rotated["transform_config"] = {{"config_groups", {{"R1", 1}}}};
  const std::vector<std::pair<nlohmann::json, std::string>> cases{
      {group({{"num_bits", 4}, {"type", "int"}, {"strategy", "group"}}), "weights of type int in 4 bits"},
      {group({{"num_bits", 4}, {"type", "float"}, {"strategy", "tensor_group"}}), "of type float in 4 bits"},
      {group({{"num_bits", 8}, {"type", "float"}, {"strategy", "group"}}), "with scales by group"},
      {group({{"num_bits", 8}, {"type", "float"}, {"strategy", "block"}, {"block_structure", {128}}}),
       "block_structure: expected the rows and columns of a block, found [128]"},
      {rotated, "with rotated weights"},
      {{{"quant_method", "compressed-tensors"}}, "without config_groups"},
      {{{"quant_method", "fp8"}, {"weight_block_size", {128, -1}}}, "weight_block_size: expected the rows"},
      {{{"quant_method", "fp8"}, {"modules_to_not_convert", "lm_head"}}, "must be a list of names"}};
  const nlohmann::json plain = nlohmann::json::parse(read_file(directory_ / "config.json"));
  for (const auto& [stored, expected] : cases) {
    nlohmann::json config = plain;
    config["quantization_config"] = stored;
    write_atomically(directory_ / "config.json", config.dump());
    const std::string message = error_message<FormatError>([&] { load_model(directory_.path(), {}); });
    EXPECT_TRUE(contains(message, expected)) << message;
    EXPECT_TRUE(contains(message, "quantization_config")) << message;
  }
}

}  // namespace
}  // namespace trainer
