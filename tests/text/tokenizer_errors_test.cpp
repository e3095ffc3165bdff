// A tokenizer directory that asks for something unsupported is refused; the error names the file and the
// construct.
#include <fstream>
#include <functional>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/text/tokenizer.h"

#include "support/temporary_directory.h"
#include "text/text_goldens.h"

namespace trainer {
namespace {

using nlohmann::json;

class TokenizerErrors : public ::testing::Test {
 protected:
  void write(const char* file, const std::string& content) {
    std::ofstream(directory_ / file, std::ios::binary) << content;
  }
  // Returns the error message for Qwen's tokenizer.json after `change`.
  std::string error_after(const std::function<void(json&)>& change) {
    json file = json::parse(read_file(golden("qwen") / "tokenizer.json"));
    change(file);
    write("tokenizer.json", file.dump());
    return error();
  }
  std::string error() {
    try {
      load_tokenizer(directory_);
    } catch (const FormatError& error) {
      return error.what();
    }
    return "no FormatError";
  }
  static void expect_in(const std::string& message, std::initializer_list<const char*> parts) {
    for (const char* part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
  }

  const test::TemporaryDirectory temporary_;
  const std::filesystem::path& directory_ = temporary_.path();
};

TEST_F(TokenizerErrors, DeeplyNestedStepsAreRefusedWithAShortMessage) {
  for (const auto& [step, list] :
       {std::pair("normalizer", "normalizers"), std::pair("pre_tokenizer", "pretokenizers"),
        std::pair("decoder", "decoders"), std::pair("post_processor", "processors")}) {
    const std::string message = error_after([&](json& file) {
      json nested = json::object({{"type", "NFC"}});
      for (int i = 0; i < 1000; i++)
        nested = json::object({{"type", "Sequence"}, {list, json::array({std::move(nested)})}});
      file[step] = std::move(nested);
    });
    expect_in(message, {"tokenizer.json", "nested deeper than 64 levels"});
    EXPECT_LT(message.size(), size_t{400});
  }
}

TEST_F(TokenizerErrors, AnUnchangedFileLoads) {
  EXPECT_EQ(error_after([](json&) {}), "no FormatError");
}

TEST_F(TokenizerErrors, UnknownTypesAreNamed) {
  expect_in(error_after([](json& file) {
              file["pre_tokenizer"] = {{"type", "UnicodeScripts"}};
            }),
            {"tokenizer.json: pre_tokenizer", "type 'UnicodeScripts' is not supported"});
  expect_in(error_after([](json& file) {
              file["pre_tokenizer"]["pretokenizers"][0] = {{"type", "BertPreTokenizer"}};
            }),
            {"pre_tokenizer.pretokenizers[0]", "'BertPreTokenizer'"});
  expect_in(error_after([](json& file) {
              file["normalizer"] = {{"type", "BertNormalizer"}};
            }),
            {"normalizer", "'BertNormalizer'"});
  expect_in(error_after([](json& file) {
              file["post_processor"] = {{"type", "Other"}};
            }),
            {"post_processor", "'Other'"});
  expect_in(error_after([](json& file) {
              file["decoder"] = {{"type", "WordPiece"}};
            }),
            {"decoder", "'WordPiece'"});
  expect_in(error_after([](json& file) { file["model"]["type"] = "WordPiece"; }), {"model", "'WordPiece'"});
}

TEST_F(TokenizerErrors, PartsThatDoNotFitTogetherAreNamed) {
  expect_in(error_after([](json& file) {
              file["model"] = {{"type", "Unigram"}, {"vocab", json::array()}};
            }),
            {"tokenizer.json: model", "Unigram", "ByteLevel"});
  expect_in(error_after([](json& file) {
              file["pre_tokenizer"]["pretokenizers"].push_back({{"type", "WhitespaceSplit"}});
            }),
            {"pre_tokenizer.pretokenizers[2]", "after ByteLevel"});
  expect_in(error_after([](json& file) {
              file["pre_tokenizer"] = {{"type", "Metaspace"},
                                       {"replacement", "_"},
                                       {"add_prefix_space", false},
                                       {"prepend_scheme", "first"}};
            }),
            {"pre_tokenizer.prepend_scheme", "contradicts add_prefix_space"});
}

TEST_F(TokenizerErrors, SettingsThatChangeIdsAreRefused) {
  expect_in(error_after([](json& file) { file["model"]["dropout"] = 0.1; }), {"model.dropout", "0.1"});
  expect_in(error_after([](json& file) {
              file["model"]["unk_token"] = "<none>";
              file["model"]["vocab"].erase("\u0101");
            }),
            {"model.unk_token", "<none>"});
  expect_in(error_after([](json& file) { file["model"]["end_of_word_suffix"] = "</w>"; }),
            {"model.end_of_word_suffix"});
  expect_in(error_after([](json& file) { file["model"]["new_setting"] = 1; }), {"'new_setting'"});
  expect_in(error_after([](json& file) { file["new_part"] = 1; }), {"'new_part'"});
}

// Padding and truncation are settings of an earlier call; the default call does neither.
TEST_F(TokenizerErrors, PaddingAndTruncationAreNotErrors) {
  EXPECT_EQ(error_after([](json& file) {
              file["truncation"] = {{"direction", "Right"}, {"max_length", 4}};
              file["padding"] = {{"strategy", {{"Fixed", 8}}}};
            }),
            "no FormatError");
  EXPECT_EQ(load_tokenizer(directory_)->encode("a b c d e f g", true),
            load_tokenizer(golden("qwen"))->encode("a b c d e f g", true));
}

TEST_F(TokenizerErrors, RegularExpressionsThatMeanSomethingElseHereAreRefused) {
  for (const char* pattern : {"\\w+", "\\p{N}{1,3}+", "[[:alpha:]]+", "[a-z&&[^x]]", "\\bab", "\\h",
                              "(?x: a)", "(", "\\p{Foo}", "(?<name>a)", "[a"}) {
    const std::string message = error_after(
        [&](json& file) { file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = pattern; });
    expect_in(message, {"tokenizer.json: pre_tokenizer.pretokenizers[0].pattern.Regex", "regular expression",
                        pattern});
  }
}

TEST_F(TokenizerErrors, ContradictionsInTheVocabularyAreNamed) {
  expect_in(error_after([](json& file) {
              file["model"]["merges"].push_back({"th", "zzzz"});
            }),
            {"model.merges", "zzzz"});
  expect_in(error_after([](json& file) { file["model"]["merges"].push_back("a b c"); }), {"model.merges["});
  expect_in(error_after([](json& file) { file["model"]["vocab"]["twice"] = 5; }), {"model.vocab", "id 5"});
  expect_in(error_after([](json& file) { file["model"]["vocab"]["minus"] = -5; }), {"model.vocab", "minus"});
  expect_in(error_after([](json& file) { file["added_tokens"].back()["id"] = 5000; }),
            {"added_tokens", "</tool_call>", "5000"});
  expect_in(error_after([](json& file) { file["model"].erase("merges"); }), {"'merges' is missing"});
  expect_in(error_after([](json& file) {
              file["post_processor"] = {
                  {"type", "BertProcessing"}, {"sep", {"<|im_end|>", 5000}}, {"cls", {"!", 0}}};
            }),
            {"post_processor", "adds the id 5000, but there are only 821 tokens"});
}

TEST_F(TokenizerErrors, DamagedFilesAreNamed) {
  const std::string good = read_file(golden("qwen") / "tokenizer.json");
  write("tokenizer.json", good.substr(0, good.size() / 2));
  expect_in(error(), {"tokenizer.json", "is not valid JSON"});
  const std::string model = read_file(golden("t5") / "spiece.model");
  for (size_t size : {size_t{0}, size_t{1}, model.size() / 3}) {
    write("spiece.model", model.substr(0, size));
    expect_in(error(), {"spiece.model"});
  }
  write("spiece.model", "");
  expect_in(error(), {"spiece.model: is empty"});
  write("spiece.model", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n");
  expect_in(error(), {"spiece.model: is the pointer of Git LFS", "git lfs pull"});
  write("spiece.model", "\x1f\x8b\x08 packed");
  expect_in(error(), {"spiece.model: is compressed with gzip; unpack it"});
  write("spiece.model", model);
  write("tokenizer.json", R"({"\u0000\u001b[31m": 1, "model": {}})");
  std::filesystem::remove(directory_ / "spiece.model");
  expect_in(error(), {R"('\x00\x1b[31m' is not supported)"});
  write("spiece.model", model);
  write("tokenizer_config.json", "[1]");
  expect_in(error(), {"tokenizer_config.json", "an object is expected"});
}

TEST_F(TokenizerErrors, DirectoriesWithoutASupportedTokenizerSayWhatToDo) {
  expect_in(error(), {directory_.c_str(), "neither tokenizer.json nor spiece.model"});
  write("tokenizer.model", "x");
  expect_in(error(), {"tokenizer.model", "save_pretrained"});
}

TEST_F(TokenizerErrors, SpieceModelIsPreferredToTokenizerJson) {
  write("spiece.model", read_file(golden("t5") / "spiece.model"));
  write("tokenizer.json", R"({"model": {"type": "Unigram"}})");
  EXPECT_EQ(load_tokenizer(directory_)->encode("Hello world", true),
            load_tokenizer(golden("t5"))->encode("Hello world", true));
}

TEST_F(TokenizerErrors, SettingsOfTokenizerConfigThatWouldChangeIdsAreRefusedByName) {
  write("tokenizer.json", read_file(golden("qwen") / "tokenizer.json"));
  write("tokenizer_config.json", R"({"split_special_tokens": true})");
  expect_in(error(), {"tokenizer_config.json", "split_special_tokens"});
  write("tokenizer_config.json", R"({"tokenizer_class": "Qwen2Tokenizer", "add_prefix_space": true})");
  expect_in(error(), {"tokenizer_config.json", "add_prefix_space"});
  for (const char* same : {R"({"tokenizer_class": "Qwen2Tokenizer", "add_prefix_space": false})",
                           R"({"tokenizer_class": "PreTrainedTokenizerFast", "add_prefix_space": true})"}) {
    write("tokenizer_config.json", same);
    EXPECT_NO_THROW(load_tokenizer(directory_)) << same;
  }
}

TEST_F(TokenizerErrors, UnknownKeysOfStepsAreRefusedByName) {
  for (const auto& [step, value] :
       {std::pair("normalizer", json{{"type", "NFC"}, {"twice", true}}),
        std::pair("decoder", json{{"type", "Fuse"}, {"twice", true}}),
        std::pair("pre_tokenizer", json{{"type", "Whitespace"}, {"twice", true}})}) {
    expect_in(error_after([&](json& file) { file[step] = value; }), {step, "'twice' is not supported"});
  }
}

}  // namespace
}  // namespace trainer
