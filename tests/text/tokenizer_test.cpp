// What the callers of a tokenizer rely on beyond the ids themselves.
#include "trainer/text/tokenizer.h"

#include <fstream>
#include <functional>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/strings.h"

#include "support/temporary_directory.h"
#include "text/text_goldens.h"

namespace trainer {
namespace {

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const DataError& error) {
    return error.what();
  }
  return "no DataError";
}

TEST(Tokenizer, AnAdapterWithoutOneUsesThatOfItsBaseModel) {
  const test::TemporaryDirectory adapter;
  std::ofstream(adapter / "adapter_config.json")
      << R"({"peft_type": "LORA", "base_model_name_or_path": ")" << golden("qwen").string() << R"("})";
  EXPECT_EQ(load_tokenizer(adapter.path())->vocab_size(), load_tokenizer(golden("qwen"))->vocab_size());
}

TEST(Tokenizer, SpecialTokensHaveTheirRoles) {
  const auto qwen = load_tokenizer(golden("qwen"));
  EXPECT_EQ(qwen->eos_id(), qwen->token_to_id("<|im_end|>"));
  EXPECT_EQ(qwen->pad_id(), qwen->token_to_id("<|endoftext|>"));
  EXPECT_TRUE(qwen->eos_id());
  EXPECT_FALSE(qwen->unk_id());
  const auto t5 = load_tokenizer(golden("t5"));
  EXPECT_EQ(t5->pad_id(), 0);
  EXPECT_EQ(t5->eos_id(), 1);
  EXPECT_EQ(t5->unk_id(), 2);
  const auto gpt2 = load_tokenizer(golden("gpt2"));  // named in special_tokens_map.json only
  EXPECT_EQ(gpt2->eos_id(), gpt2->vocab_size() - 1);
  EXPECT_EQ(gpt2->pad_id(), gpt2->token_to_id("<right>"));
}

// A golden tokenizer with changes to its files.
class ChangedFiles {
 public:
  explicit ChangedFiles(const char* name) {
    for (const auto& entry : std::filesystem::directory_iterator(golden(name)))
      std::filesystem::copy(entry.path(), directory_ / entry.path().filename());
  }
  const ChangedFiles& set(const char* file, const char* key, const nlohmann::json& value) const {
    const std::filesystem::path path = directory_ / file;
    nlohmann::json json =
        std::filesystem::exists(path) ? nlohmann::json::parse(read_file(path)) : nlohmann::json::object();
    json[key] = value;
    write_atomically(path, json.dump());
    return *this;
  }
  std::unique_ptr<Tokenizer> load() const { return load_tokenizer(directory_.path()); }
  // What loading it writes to the log.
  std::string said() const {
    testing::internal::CaptureStderr();
    load();
    return testing::internal::GetCapturedStderr();
  }

 private:
  test::TemporaryDirectory directory_;
};

constexpr const char* kTokenizerConfig = "tokenizer_config.json";

// transformers 5.23, _from_pretrained: both keys are dropped if there is a tokenizer.json.
TEST(Tokenizer, TokenizerJsonDecidesWhatIsAddedAroundAText) {
  const std::vector<int32_t> with_bos = load_tokenizer(golden("llama2_v5"))->encode("quick", true),
                             bare = load_tokenizer(golden("llama2_v5"))->encode("quick", false);
  ASSERT_EQ(with_bos.size(), bare.size() + 1);
  const ChangedFiles without("llama2_v5");
  without.set(kTokenizerConfig, "add_bos_token", false).set(kTokenizerConfig, "add_eos_token", true);
  EXPECT_EQ(without.load()->encode("quick", true), with_bos);
  const ChangedFiles plain("llama2_v5");
  plain.set("tokenizer.json", "post_processor", nullptr).set(kTokenizerConfig, "add_bos_token", true);
  EXPECT_EQ(plain.load()->encode("quick", true), bare);
  EXPECT_NE(
      plain.set(kTokenizerConfig, "add_eos_token", true).said().find("add_eos_token: true has no effect"),
      std::string::npos);
}

// transformers 5.23, clean_up_tokenization(): not for BPE unless it is forced.
TEST(Tokenizer, BlanksAreCleanedUpAsTransformersDoes) {
  const std::string text = "It 's done , isn 't it ? We 've won !";
  for (const char* name : {"t5", "t5_json"}) {
    const ChangedFiles files(name);
    const std::vector<int32_t> ids = files.load()->encode(text, false);
    const std::string kept = files.load()->decode(ids, true);
    files.set(kTokenizerConfig, "clean_up_tokenization_spaces", true);
    EXPECT_TRUE(files.load()->cleans_up_spaces());
    EXPECT_EQ(kept, "It 's done , isn 't it ? We 've won ");  // "!" is unknown
    EXPECT_EQ(files.load()->decode(ids, true), "It's done, isn 't it? We've won ");
  }
  const ChangedFiles bpe("qwen");
  bpe.set(kTokenizerConfig, "clean_up_tokenization_spaces", true);
  EXPECT_EQ(bpe.load()->decode(bpe.load()->encode(text, false), true), text);
  bpe.set(kTokenizerConfig, "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output", true);
  EXPECT_EQ(bpe.load()->decode(bpe.load()->encode("It 's done , isn 't it ? I n't", false), true),
            "It's done, isn 't it? In't");
}

TEST(Tokenizer, AKeyOfItsFilesThatIsNotKnownIsAWarningOnce) {
  const ChangedFiles files("qwen");
  EXPECT_EQ(files.set(kTokenizerConfig, "model_max_length", 512).said(), "");
  files.set(kTokenizerConfig, "reverse_words", true);
  const std::string said = files.said();
  EXPECT_NE(said.find("tokenizer_config.json: unknown keys are ignored: reverse_words"), std::string::npos)
      << said;
  EXPECT_EQ(files.said(), "");
  EXPECT_NE(files.set("special_tokens_map.json", "padding_of_words", 1).said().find("padding_of_words"),
            std::string::npos);
}

TEST(Tokenizer, T5SentinelsCountDownFromTheLastId) {
  const auto t5 = load_tokenizer(golden("t5"));
  EXPECT_EQ(t5->token_to_id("<extra_id_0>"), t5->vocab_size() - 1);
  EXPECT_EQ(t5->token_to_id("<extra_id_99>"), t5->vocab_size() - 100);
  EXPECT_EQ(t5->token_to_id("<extra_id_100>"), std::nullopt);
}

TEST(Tokenizer, TokensAreFoundByTheirExactName) {
  const auto qwen = load_tokenizer(golden("qwen"));
  EXPECT_TRUE(qwen->token_to_id("\u0120the"));
  EXPECT_FALSE(qwen->token_to_id("<|im_en"));
  EXPECT_TRUE(load_tokenizer(golden("t5"))->token_to_id("\u2581"));
}

TEST(Tokenizer, InvalidUtf8IsRefusedWithItsOffset) {
  for (const char* name : {"qwen", "t5"}) {
    const auto tokenizer = load_tokenizer(golden(name));
    for (const std::string bad :
         {"abc\xff", "abc\xc3", "abc\xed\xa0\x80", "abc\xc0\xaf", "abc\xf4\x90\x80\x80"}) {
      const std::string message = message_of([&] { tokenizer->encode(bad, true); });
      EXPECT_NE(message.find("offset 3"), std::string::npos) << name << ": " << message;
    }
  }
}

TEST(Tokenizer, IdsOutsideTheVocabularyAreRefused) {
  for (const char* name : {"qwen", "t5"}) {
    const auto tokenizer = load_tokenizer(golden(name));
    for (int32_t id : {-1, static_cast<int32_t>(tokenizer->vocab_size())}) {
      const std::string message = message_of([&] { tokenizer->decode({{id}}, true); });
      EXPECT_NE(message.find(concat("id ", id)), std::string::npos) << name << ": " << message;
    }
  }
}

TEST(Tokenizer, LongWordsAndTextsTakeReasonableTime) {
  const auto qwen = load_tokenizer(golden("qwen"));
  const std::string letters(400000, 'a'), blanks(400000, ' ');
  EXPECT_EQ(qwen->decode(qwen->encode(letters, false), false), letters);
  EXPECT_EQ(qwen->decode(qwen->encode(blanks + "x", false), false), blanks + "x");
}

// T5's normalizer makes spaces of line ends and tabs.
TEST(AddedTokens, OfBlanksTakeNoOtherBlanks) {
  for (const char* name : {"t5", "t5_json"}) {
    const auto directory = std::filesystem::path(SOURCE_DIR) / "tests/goldens/text" / name;
    const auto before = load_tokenizer(directory), tokenizer = load_tokenizer(directory);
    const std::vector<std::string> tokens{"\n", "\t", "  "};
    tokenizer->add_tokens(tokens);
    const auto first = static_cast<int32_t>(before->vocab_size());
    const test::TemporaryDirectory saved;
    save_tokenizer(directory, tokens, saved.path());
    const auto loaded = load_tokenizer(saved.path());
    for (const Tokenizer* with_tokens : {tokenizer.get(), loaded.get()}) {
      EXPECT_EQ(with_tokens->encode("plain words here", false), before->encode("plain words here", false))
          << name;
      for (size_t i = 0; i < tokens.size(); i++) {
        const std::vector<int32_t> ids = with_tokens->encode("a" + tokens[i] + "a", false);
        EXPECT_EQ(std::ranges::count(ids, first + static_cast<int32_t>(i)), 1) << name << " " << i;
        EXPECT_NE(with_tokens->decode(ids, false).find(tokens[i]), std::string::npos) << name << " " << i;
      }
    }
  }
}

// transformers 5.23, _from_pretrained: "legacy: convert the added_tokens.json file".
TEST(Tokenizer, AddedTokensJsonIsReadAsTransformersDoes) {
  const std::string text = "a<new>b <special> c<|im_end|>  <new> the <norm> quick";
  const auto with = [](const char* name, const nlohmann::json& tokens) {
    auto files = std::make_unique<ChangedFiles>(name);
    files->set("tokenizer_config.json", "added_tokens_decoder", nullptr);
    for (const auto& [token, id] : tokens.items()) files->set("added_tokens.json", token.c_str(), id);
    return files;
  };
  const auto qwen = with("qwen", {{"<new>", 821}, {"<special>", 822}});
  const std::vector<int32_t> ids{64, 821, 65, 220, 822, 295, 818, 343, 821, 360, 542, 77, 314, 76, 29, 745};
  EXPECT_EQ(qwen->load()->encode(text, true), ids);
  EXPECT_EQ(qwen->load()->decode(ids, true), "a<new>b <special> c  <new> the <norm> quick");
  qwen->set("tokenizer_config.json", "additional_special_tokens", {"<special>"});
  EXPECT_EQ(qwen->load()->encode(text, true), ids);
  EXPECT_EQ(qwen->load()->decode(ids, true), "a<new>b  c  <new> the <norm> quick");
  qwen->set("tokenizer_config.json", "pad_token", "<new>");
  EXPECT_EQ(qwen->load()->decode(ids, true), "ab  c   the <norm> quick");
  // Only where there is no added_tokens_decoder.
  qwen->set("tokenizer_config.json", "added_tokens_decoder", nlohmann::json::object())
      .set("tokenizer_config.json", "pad_token", "<|endoftext|>");
  EXPECT_FALSE(qwen->load()->token_to_id("<new>"));

  const auto t5 = with("t5", {{"<new>", 362}, {"<special>", 363}});
  EXPECT_EQ(t5->load()->encode(text, true),
            (std::vector<int32_t>{121, 362, 128, 363, 235, 171, 2,   8,   249, 2, 4,  16,  57, 2, 172,
                                  362, 53,  4,   3,   171, 16,  139, 249, 172, 3, 95, 234, 94, 1}));
  const auto llama = with("llama2_v5", {{"<new>", 902}, {"", 903}});
  EXPECT_EQ(llama->load()->token_to_id("<new>"), 902);
}

TEST(Tokenizer, IdsOfAddedTokensJsonThatDoNotFit) {
  const ChangedFiles gap("qwen");
  const std::string said = gap.set("added_tokens.json", "<new>", 826).said();
  EXPECT_NE(
      said.find(
          "added_tokens.json: token '<new>' has the id 826, but the rest of the vocabulary gives it 821"),
      std::string::npos)
      << said;
  EXPECT_EQ(gap.load()->token_to_id("<new>"), 821) << "as transformers 5.23";
  const ChangedFiles taken("qwen");
  taken.set("added_tokens.json", "<new>", 7);
  try {
    taken.load();
    ADD_FAILURE() << "no error";
  } catch (const FormatError& error) {
    EXPECT_NE(std::string(error.what()).find("added_tokens.json: token '<new>' has the id 7"),
              std::string::npos);
  }
}

// transformers 5.23, TokenizersBackend.convert_to_native_format: a class with its own __init__ takes only the
// vocabulary, the merges and the post_processor of tokenizer.json.
TEST(Tokenizer, QwensStepsAreThoseOfItsClass) {
  const std::string text = "It's 12345 cafe\u0301 dogs 's THE, and  so";
  const std::vector<int32_t> ids = load_tokenizer(golden("qwen"))->encode(text, true);
  const nlohmann::json words{
      {"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
  const auto other = [&](const char* tokenizer_class, const char* model_type) {
    auto files = std::make_unique<ChangedFiles>("qwen");
    files->set("tokenizer.json", "normalizer", nullptr).set("tokenizer.json", "pre_tokenizer", words);
    files->set(kTokenizerConfig, "tokenizer_class", tokenizer_class)
        .set("config.json", "model_type", model_type);
    return files;
  };
  for (const auto& [tokenizer_class, model_type] : {std::pair("Qwen2Tokenizer", "qwen2"),
                                                    {"Qwen2TokenizerFast", "qwen3"},
                                                    {"Qwen2Tokenizer", "llama"},
                                                    {"LlamaTokenizerFast", "qwen2"}})
    EXPECT_EQ(other(tokenizer_class, model_type)->load()->encode(text, true), ids) << tokenizer_class;
  for (const auto& [tokenizer_class, model_type] : {std::pair("PreTrainedTokenizerFast", "qwen3"),
                                                    {"PreTrainedTokenizerFast", "llama"},
                                                    {"Qwen2Tokenizer", "mistral"}})
    EXPECT_NE(other(tokenizer_class, model_type)->load()->encode(text, true), ids) << tokenizer_class;
  EXPECT_NE(other("Qwen2Tokenizer", "qwen2")->said().find("are not those of Qwen2Tokenizer"),
            std::string::npos);
  EXPECT_EQ(ChangedFiles("qwen").said(), "");
}

TEST(Tokenizer, VocabularyAndMergesAloneAreRefusedWithTheCommand) {
  const test::TemporaryDirectory directory;
  std::ofstream(directory / "vocab.json") << "{}";
  std::ofstream(directory / "merges.txt") << "";
  std::ofstream(directory / "tokenizer_config.json") << R"({"tokenizer_class": "Qwen2Tokenizer"})";
  try {
    load_tokenizer(directory.path());
    ADD_FAILURE() << "no error";
  } catch (const FormatError& error) {
    EXPECT_NE(std::string(error.what())
                  .find("has vocab.json and merges.txt, but no tokenizer.json; make it with "
                        "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace trainer
