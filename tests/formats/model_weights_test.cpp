#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/formats/model_directory.h"

#include "support/error_message.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::contains;
using test::error_message;
using test::TemporaryDirectory;

const fs::path kWeightGoldens = fs::path(SOURCE_DIR) / "tests/goldens/formats";

double bf16_sum(const TensorView& view) {
  double sum = 0;
  for (size_t i = 0; i < view.nbytes; i += 2) {
    uint32_t bits = 0;
    std::memcpy(reinterpret_cast<std::byte*>(&bits) + 2, view.data + i, 2);
    float value;
    std::memcpy(&value, &bits, 4);
    sum += value;
  }
  return sum;
}

// Tensors of `bytes` bytes each; the content is the name's last letter.
TensorSources sources(const std::vector<std::string>& names, int64_t bytes) {
  TensorSources sources;
  for (const std::string& name : names) {
    sources[name] = {Dtype::u8, {bytes}, [=](std::ostream& out) { out << std::string(bytes, name.back()); }};
  }
  return sources;
}

std::string weights_error(const fs::path& directory) {
  return error_message<FormatError>([&] { read_model_weights(directory); });
}

TEST(ReadModelWeights, GivesTheShardsThatTransformersWrote) {
  const ModelWeights weights = read_model_weights(kWeightGoldens / "llama_sharded");
  const json expected = json::parse(read_file(kWeightGoldens / "llama_sharded.json"));
  ASSERT_EQ(weights.tensors.size(), expected.size());
  EXPECT_EQ(weights.files.size(), 2u);
  for (const auto& [name, tensor] : expected.items()) {
    const TensorView& view = weights.tensors.at(name);
    EXPECT_EQ(view.dtype, Dtype::bf16);
    EXPECT_EQ(view.shape, tensor["shape"].get<std::vector<int64_t>>());
    EXPECT_NEAR(bf16_sum(view), tensor["sum"].get<double>(), 1e-9) << name;
  }
  EXPECT_EQ(weights.total_bytes(), 2000);  // metadata.total_size in the index
}

TEST(ReadModelWeights, KnowsTheFileOfATensor) {
  const ModelWeights weights = read_model_weights(kWeightGoldens / "llama_sharded");
  EXPECT_EQ(weights.file_of.at("lm_head.weight"), "model-00002-of-00002.safetensors");
  const auto mapping = weights.mapping_of("lm_head.weight");
  EXPECT_EQ(mapping->path().filename(), "model-00002-of-00002.safetensors");
  const TensorView& view = weights.tensors.at("lm_head.weight");
  EXPECT_GE(view.data, mapping->data());
  EXPECT_LE(view.data + view.nbytes, mapping->data() + mapping->size());
}

TEST(ReadModelWeights, NamesAMissingShard) {
  TemporaryDirectory directory;
  fs::copy(kWeightGoldens / "llama_sharded", directory.path());
  fs::remove(directory / "model-00002-of-00002.safetensors");
  const std::string message = weights_error(directory.path());
  EXPECT_TRUE(contains(message, "1 of 2")) << message;
  EXPECT_TRUE(contains(message, "model-00002-of-00002.safetensors")) << message;
}

TEST(ReadModelWeights, NamesATensorThatIsInTwoFiles) {
  TemporaryDirectory directory;
  write_safetensors(directory / "one.safetensors", sources({"a", "b"}, 4));
  write_safetensors(directory / "two.safetensors", sources({"b", "c"}, 4));
  write_atomically(
      directory / "model.safetensors.index.json",
      R"({"weight_map": {"a": "one.safetensors", "b": "one.safetensors", "c": "two.safetensors"}})");
  const std::string message = weights_error(directory.path());
  EXPECT_TRUE(contains(message, "'b' is in both one.safetensors and two.safetensors")) << message;
}

TEST(ReadModelWeights, NamesATensorThatTheIndexPromises) {
  TemporaryDirectory directory;
  write_safetensors(directory / "one.safetensors", sources({"a"}, 4));
  write_atomically(directory / "model.safetensors.index.json",
                   R"({"weight_map": {"a": "one.safetensors", "b": "one.safetensors"}})");
  const std::string message = weights_error(directory.path());
  EXPECT_TRUE(contains(message, "'b' is not in one.safetensors")) << message;
}

TEST(ReadModelWeights, AnIndexStaysInItsDirectory) {
  TemporaryDirectory directory;
  for (const char* name : {R"("../one.safetensors")", R"("/etc/passwd")", R"("..")", R"("")", "7", "null"}) {
    write_atomically(directory / "model.safetensors.index.json",
                     std::string(R"({"weight_map": {"a": )") + name + "}}");
    EXPECT_TRUE(contains(weights_error(directory.path()), "is not a file name")) << name;
  }
  for (const char* text : {"{}", R"({"weight_map": []})", R"({"weight_map": {}})"}) {
    write_atomically(directory / "model.safetensors.index.json", text);
    EXPECT_TRUE(contains(weights_error(directory.path()), "weight_map")) << text;
  }
}

TEST(ReadModelWeights, PicklesAreRefusedWithTheCommandThatConvertsThem) {
  TemporaryDirectory directory;
  const fs::path model = directory / "it's a model";
  fs::create_directory(model);
  write_atomically(model / "config.json",
                   R"({"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]})");
  write_atomically(model / "pytorch_model.bin", "pickle");
  const std::string message = weights_error(model);
  EXPECT_TRUE(contains(message, "pytorch_model.bin")) << message;
  EXPECT_TRUE(contains(message, "t.T5ForConditionalGeneration.from_pretrained")) << message;
  EXPECT_TRUE(contains(message, "it'\\''s a model'")) << message;
}

TEST(ReadModelWeights, SaysWhatADirectoryLacks) {
  TemporaryDirectory directory;
  EXPECT_TRUE(contains(weights_error(directory / "missing"), "there is no such directory"));
  EXPECT_TRUE(contains(weights_error(directory.path()), "holds no weights"));
  write_safetensors(directory / "model.fp16.safetensors", sources({"a"}, 4));
  EXPECT_TRUE(contains(weights_error(directory.path()), "model.fp16.safetensors"));
}

TEST(WriteModelWeights, ASmallModelIsOneFile) {
  TemporaryDirectory directory;
  EXPECT_EQ(write_model_weights(directory.path(), sources({"a", "b"}, 10), 20),
            std::vector<std::string>{"model.safetensors"});
  EXPECT_EQ(read_model_weights(directory.path()).tensors.size(), 2u);
}

TEST(WriteModelWeights, ALargeModelIsSplitAndReadBack) {
  TemporaryDirectory directory;
  const auto written = write_model_weights(directory.path(), sources({"a", "b", "c", "d", "e"}, 10), 25);
  EXPECT_EQ(written,
            (std::vector<std::string>{"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                                      "model-00003-of-00003.safetensors", "model.safetensors.index.json"}));
  const ModelWeights weights = read_model_weights(directory.path());
  EXPECT_EQ(weights.tensors.size(), 5u);
  EXPECT_EQ(weights.file_of.at("c"), "model-00002-of-00003.safetensors");
  EXPECT_EQ(std::to_integer<char>(weights.tensors.at("e").data[9]), 'e');
  const json index = json::parse(read_file(directory / "model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], 50);
  EXPECT_EQ(index["metadata"]["total_parameters"], 50);
}

TEST(WriteModelWeights, ATensorLargerThanAFileGetsOneOfItsOwn) {
  TemporaryDirectory directory;
  EXPECT_EQ(write_model_weights(directory.path(), sources({"a", "b"}, 10), 5).size(), 3u);
  EXPECT_EQ(read_model_weights(directory.path()).tensors.size(), 2u);
}

TEST(WriteModelWeights, WeightsOfAnEarlierSaveAreReplaced) {
  TemporaryDirectory directory;
  write_atomically(directory / "model-of-mine.safetensors", "kept");
  write_model_weights(directory.path(), sources({"a", "b", "c"}, 10), 10);
  write_model_weights(directory.path(), sources({"x"}, 10));
  EXPECT_EQ(directory.names(), (std::set<std::string>{"model.safetensors", "model-of-mine.safetensors"}));
  write_model_weights(directory.path(), sources({"a", "b"}, 10), 10);
  EXPECT_EQ(directory.names(),
            (std::set<std::string>{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                                   "model.safetensors.index.json", "model-of-mine.safetensors"}));
}

TEST(CopyCompanionFiles, CopiesAllChatTemplates) {
  TemporaryDirectory from, to;
  make_directories(from / "additional_chat_templates");
  write_atomically(from / "additional_chat_templates/tool_use.jinja", "with tools");
  write_atomically(from / "additional_chat_templates/notes.txt", "none");
  EXPECT_EQ(copy_companion_files(from.path(), to.path()),
            (std::vector<std::string>{"additional_chat_templates/tool_use.jinja"}));
  EXPECT_EQ(read_file(to / "additional_chat_templates/tool_use.jinja"), "with tools");
  EXPECT_FALSE(std::filesystem::exists(to / "additional_chat_templates/notes.txt"));
}

TEST(CopyCompanionFiles, CopiesWhatBelongsToAModelAndNothingElse) {
  TemporaryDirectory from, to;
  for (const char* name : {"tokenizer.json", "spiece.model", "chat_template.jinja", "generation_config.json",
                           "config.json", "model.safetensors", "README.md"}) {
    write_atomically(from / name, name);
  }
  copy_companion_files(from.path(), to.path());
  EXPECT_EQ(to.names(), (std::set<std::string>{"tokenizer.json", "spiece.model", "chat_template.jinja",
                                               "generation_config.json"}));
  EXPECT_EQ(read_file(to / "spiece.model"), "spiece.model");
  EXPECT_EQ(copy_companion_files(from.path(), from.path()).size(), 4u);
}

}  // namespace
}  // namespace trainer
