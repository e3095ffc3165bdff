// The files of a tokenizer with values of the wrong kind, absurd or malformed: they are accepted or refused
// in words of ours.
#include <filesystem>
#include <fstream>
#include <functional>

#include <gtest/gtest.h>

#include "trainer/base/files.h"
#include "trainer/base/log.h"
#include "trainer/text/chat_template.h"
#include "trainer/text/tokenizer.h"

#include "support/hostile_json.h"
#include "support/temporary_directory.h"
#include "text/text_goldens.h"
#include "text/tokenizer/gguf_vocabulary.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;

class HostileTokenizer : public ::testing::Test {
 protected:
  HostileTokenizer() {
    for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json"}) {
      if (fs::exists(golden("smollm2") / name)) fs::copy(golden("smollm2") / name, directory_.path());
    }
    log::set_level(log::Level::error);
  }
  ~HostileTokenizer() override { log::set_level(log::Level::info); }

  void read_all(const char* name, const std::string& json, const std::function<void()>& read) {
    int failed = 0;
    test::for_each_hostile(json, [&](const std::string& text, const std::string& what) {
      std::ofstream(directory_ / name, std::ios::binary | std::ios::trunc) << text;
      const std::string wrong = test::wrong_words(read);
      if (!wrong.empty() && ++failed <= 20) ADD_FAILURE() << name << ": " << what << ": " << wrong;
    });
    EXPECT_EQ(failed, 0);
  }
  void use() const {
    const auto tokenizer = load_tokenizer(directory_.path());
    tokenizer->decode(tokenizer->encode("Hello, world 2024!", true), true);
  }

  const test::TemporaryDirectory directory_{test::memory_path()};
};

TEST_F(HostileTokenizer, TokenizerJson) {
  read_all("tokenizer.json", read_file(golden("smollm2") / "tokenizer.json"), [&] { use(); });
}

TEST_F(HostileTokenizer, VocabularyOfAGguf) {
  read_all("tokenizer.json", read_file(golden("smollm2") / "tokenizer.json"),
           [&] { read_gguf_vocabulary(directory_.path(), 1000); });
}

TEST_F(HostileTokenizer, TokenizerConfig) {
  read_all(
      "tokenizer_config.json",
      R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}, "add_bos_token": true,)"
      R"( "added_tokens_decoder": {"0": {"content": "<s>", "special": true}}, "extra_ids": 3,)"
      R"( "additional_special_tokens": ["<a>"], "clean_up_tokenization_spaces": false,)"
      R"( "chat_template": [{"name": "default", "template": "{{ messages }}"}], "model_max_length": 100})",
      [&] {
        use();
        load_chat_template(directory_.path());
      });
}

TEST_F(HostileTokenizer, SpecialTokensMap) {
  fs::remove(directory_ / "tokenizer_config.json");
  read_all(
      "special_tokens_map.json",
      R"({"bos_token": "<s>", "pad_token": {"content": "<p>"}, "additional_special_tokens": ["<a>", "<b>"]})",
      [&] { use(); });
}

TEST_F(HostileTokenizer, ChatTemplateJson) {
  fs::remove(directory_ / "tokenizer_config.json");
  read_all("chat_template.json", R"({"chat_template": "{{ messages }}"})",
           [&] { load_chat_template(directory_.path()); });
}

}  // namespace
}  // namespace trainer
