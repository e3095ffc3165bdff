// T5Gemma and T5Gemma 2 beside the goldens: the names of their files, what is refused, and the vector of the
// end of an image.
#include <ATen/core/grad_mode.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"

#include "formats/text_half.h"
#include "models/copied_model.h"
#include "models/families.h"

namespace trainer {
namespace {

using test::contains;

at::Tensor logits_of(const CopiedModel& files) {
  const auto model = load_model(files.directory.path(), {});
  at::NoGradGuard no_grad;
  return model->head().logits(model->supervised_states(Golden(files.golden).whole(), ForwardContext{}));
}

// The text model of the encoder has a name of its own in Transformers 5, and none in the files that it
// writes.
TEST(T5Gemma2, HasTheSameTensorsUnderBothNamesOfItsEncoder) {
  const std::string plain = "model.encoder.", nested = "model.encoder.text_model.";
  CopiedModel copy("t5gemma2");
  const at::Tensor expected = logits_of(copy);
  std::map<std::string, TensorView> tensors;
  int64_t renamed = 0;
  for (const auto& [name, view] : copy.weights.tensors) {
    const bool other = contains(name, "vision_tower") || contains(name, "multi_modal_projector");
    const bool is_own = name.starts_with(plain) && !other;
    const std::string rest = is_own ? name.substr((name.starts_with(nested) ? nested : plain).size()) : "";
    tensors[!is_own ? name : name.starts_with(nested) ? plain + rest : nested + rest] = view;
    renamed += is_own ? 1 : 0;
  }
  EXPECT_GT(renamed, 20);
  copy.weights.tensors = tensors;
  copy.write_weights();
  EXPECT_TRUE(logits_of(copy).equal(expected));
  const ModelWeights weights = read_model_weights(copy.directory.path());
  for (const auto& [name, view] : weights.tensors)
    EXPECT_TRUE(name.starts_with(nested) || name.starts_with("model.decoder.")) << name;
  for (const auto& [name, view] : weights.others)
    EXPECT_TRUE(contains(name, "vision_tower.") || contains(name, "multi_modal_projector.")) << name;
  EXPECT_GT(weights.others.size(), 10u);
  EXPECT_EQ(whole_again(weights, sources_of(weights.tensors)).size(), tensors.size());
  for (const auto& [name, source] : as_stored(weights, sources_of(weights.tensors)))
    EXPECT_TRUE(tensors.contains(name)) << name;
}

TEST(T5Gemma2, ATokenOfItsOwnEndsAnImage) {
  Golden golden("t5gemma2");
  const int32_t end = golden.model->config().at("eoi_token_index").get<int32_t>();
  for (Sample& sample : golden.batch.samples) {
    for (std::vector<int32_t>* ids : {&sample.input_ids, &sample.labels})
      for (int32_t& id : *ids) id = id == end ? end + 1 : id;
  }
  ForwardContext context;
  context.anchor = at::zeros({1}).set_requires_grad(true);
  const std::string vector = "model.encoder.text_model.embed_tokens.eoi_embedding";
  const auto without = golden.gradients(golden.one_cut(), context);
  EXPECT_EQ(without.at(vector).abs().max().item<float>(), 0);
  golden.batch.samples[0].input_ids[0] = end;
  EXPECT_GT(golden.gradients(golden.one_cut(), context).at(vector).abs().max().item<float>(), 0);
}

TEST(T5Gemma, WhatIsNotSupportedIsNamed) {
  const std::vector<std::tuple<std::string, std::string, nlohmann::json, std::string>> cases{
      {"t5gemma", "/decoder/vocab_size", 98, "the encoder's vocab_size 97 is not the decoder's, 98"},
      {"t5gemma", "/attention_dropout", 0.1, "attention_dropout other than 0"},
      {"t5gemma",
       "/encoder/rope_parameters",
       {{"rope_type", "dynamic"}, {"factor", 2.0}},
       "depends on the length"},
      {"t5gemma", "/decoder/bos_token_id", nullptr, "bos_token_id: is missing"},
      {"t5gemma", "/decoder", 3, "decoder: must be an object"},
      {"t5gemma2", "/decoder/hidden_size", 64, "T5Gemma 2 needs the same in both"},
      {"t5gemma2", "/encoder/text_config/attention_dropout", 0.1, ""},  // the whole's counts
  };
  for (const auto& [name, key, value, expected] : cases) {
    const CopiedModel copy(name);
    copy.change_config([&key = key, &value = value](nlohmann::json& config) {
      config[nlohmann::json::json_pointer(key)] = value;
    });
    if (expected.empty()) {
      EXPECT_NO_THROW(load_model(copy.directory.path(), {})) << key;
    } else {
      EXPECT_TRUE(contains(copy.error(), expected)) << copy.error();
    }
  }
}

TEST(T5Gemma, AnAdapterOnItsVocabularyIsRefused) {
  for (const char* name : {"t5gemma", "t5gemma2"}) {
    for (const bool saved : {true, false}) {
      const auto model = load_model(golden_directory(name) / "model", {});
      LoraConfig lora;
      (saved ? lora.modules_to_save : lora.target_modules.emplace<std::vector<std::string>>())
          .push_back("embed_tokens");
      const std::string message =
          test::error_message<ConfigError>([&] { apply_lora(*model, lora, 0, at::kCPU); });
      EXPECT_TRUE(contains(message, saved ? "lora.modules_to_save: " : "lora.target_modules: ")) << message;
      EXPECT_TRUE(contains(message, "not supported for model_type t5gemma")) << message;
    }
  }
}

TEST(T5Gemma, ANewVocabularyIsThatOfBothStacks) {
  for (const char* name : {"t5gemma", "t5gemma2"}) {
    const CopiedModel copy(name);
    const test::TemporaryDirectory out;
    write_model_config(copy.directory.path(), out.path(), Dtype::f32, {{"vocab_size", 128}});
    const nlohmann::json config = read_model_config(out.path());
    EXPECT_EQ(config["vocab_size"], 128);
    EXPECT_EQ(config["encoder"]["vocab_size"], 128);
    EXPECT_EQ(config["decoder"]["vocab_size"], 128);
  }
}

}  // namespace
}  // namespace trainer
