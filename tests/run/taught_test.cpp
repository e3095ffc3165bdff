// What training taught is in the files of the result and of every checkpoint.
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainer/base/stop_signals.h"
#include "trainer/base/strings.h"
#include "trainer/export/export_model.h"
#include "trainer/formats/gguf.h"
#include "trainer/run/train.h"
#include "trainer/text/tokenizer.h"

#include "run/tiny_run.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using test::TinyRun;

constexpr const char* kChatMl =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
constexpr const char* kOwn =
    "{% for m in messages %}## {{ m.role }}: {{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}## assistant: {% endif %}";

Json read(const fs::path& file) { return Json::parse(read_file(file)); }

// A base model whose end token is <|endoftext|> everywhere, with a template that ends turns with <|im_end|>.
class TaughtTest : public ::testing::Test {
 protected:
  TaughtTest() {
    Json config = read(model() / "tokenizer_config.json");
    config["eos_token"] = "<|endoftext|>";
    config["chat_template"] = kChatMl;
    write_atomically(model() / "tokenizer_config.json", config.dump());
    const auto tokenizer = load_tokenizer(model());
    base_end_ = *tokenizer->token_to_id("<|endoftext|>");
    turn_end_ = *tokenizer->token_to_id("<|im_end|>");
    write_atomically(model() / "generation_config.json",
                     Json{{"eos_token_id", base_end_}, {"top_p", 0.9}}.dump());
    std::ofstream rows(file("chat.jsonl"));
    for (const char* name : {"Bo", "Eve", "Ada", "Tim"})
      rows << Json{{"messages",
                    {{{"role", "user"}, {"content", name}}, {{"role", "assistant"}, {"content", "Hello"}}}}}
           << '\n';
  }

  fs::path file(const std::string& name) const { return run_.output(name); }
  fs::path model() const { return file("model"); }
  // Trains for two steps, with a checkpoint after each, and returns the output directory.
  fs::path trained(const std::string& name, std::vector<std::string> overrides) const {
    overrides.insert(overrides.end(), {"training.max_steps=2", "save.steps=1", "overwrite_output_dir=true"});
    const StopSignals signals;
    train(run_.config(name, overrides), {});
    return run_.output(name);
  }
  std::vector<std::string> chat(std::vector<std::string> more = {}) const {
    more.insert(more.end(), {"data.kind=chat", "data.train=" + file("chat.jsonl").string()});
    return more;
  }

  TinyRun run_;
  int32_t base_end_ = 0, turn_end_ = 0;
};

TEST_F(TaughtTest, TheEndTokenOfTheTemplateEndsTheAnswersOfTheResult) {
  const fs::path out = trained("chat", chat());
  for (const fs::path& place : {out, out / "checkpoint-1"}) {
    const Json written = read(place / "generation_config.json");
    EXPECT_EQ(written["eos_token_id"], Json({base_end_, turn_end_}));
    EXPECT_EQ(written["top_p"], 0.9);
  }
  EXPECT_EQ(read_file(out / "tokenizer_config.json"), read_file(model() / "tokenizer_config.json"));
  export_model({out, file("copy")});
  EXPECT_EQ(read(file("copy") / "generation_config.json")["eos_token_id"], Json({base_end_, turn_end_}));
  export_gguf({out, file("chat.gguf")}, std::nullopt);
  const GgufFile gguf = read_gguf(file("chat.gguf"));
  const auto id = [&](const char* key) {
    return static_cast<int32_t>(std::get<uint32_t>(gguf.metadata.at(key)));
  };
  EXPECT_EQ(id("tokenizer.ggml.eos_token_id"), base_end_);
  EXPECT_EQ(id("tokenizer.ggml.eot_token_id"), turn_end_);
}

TEST_F(TaughtTest, AnAdapterHasItTooAndGivesItToWhatItIsMergedInto) {
  const fs::path out = trained("lora", chat({"lora.r=2"}));
  EXPECT_EQ(read(out / "generation_config.json")["eos_token_id"], Json({base_end_, turn_end_}));
  export_model({out, file("merged")});
  EXPECT_EQ(read(file("merged") / "generation_config.json")["eos_token_id"], Json({base_end_, turn_end_}));
}

TEST_F(TaughtTest, TextsTeachTheTokenizersOwnEndToken) {
  write_atomically(model() / "generation_config.json", Json{{"eos_token_id", turn_end_}}.dump());
  EXPECT_EQ(read(trained("text", {}) / "generation_config.json")["eos_token_id"],
            Json({turn_end_, base_end_}));
}

TEST_F(TaughtTest, WhatTheBaseSaysAlreadyStaysAsItIs) {
  const std::string file_of_base = concat("{ \"eos_token_id\": [", base_end_, ", ", turn_end_, "] }");
  write_atomically(model() / "generation_config.json", file_of_base);
  EXPECT_EQ(read_file(trained("chat", chat()) / "generation_config.json"), file_of_base);
}

// Without the file, Transformers reads the settings of generation from config.json.
TEST_F(TaughtTest, ABaseWithoutTheFileGetsOneWithTheSettingsOfConfigJson) {
  fs::remove(model() / "generation_config.json");
  Json config = read(model() / "config.json");
  config["eos_token_id"] = base_end_;
  config["no_repeat_ngram_size"] = 3;
  write_atomically(model() / "config.json", config.dump());
  const Json written = read(trained("chat", chat()) / "generation_config.json");
  EXPECT_EQ(written["eos_token_id"], Json({base_end_, turn_end_}));
  EXPECT_EQ(written["no_repeat_ngram_size"], 3);
  EXPECT_FALSE(written.contains("hidden_size"));
}

TEST_F(TaughtTest, TheTemplateOfTheRunIsThatOfTheResult) {
  write_atomically(model() / "chat_template.jinja", kChatMl);
  fs::create_directory(model() / "additional_chat_templates");
  write_atomically(model() / "additional_chat_templates/tool_use.jinja", kChatMl);
  write_atomically(file("own.jinja"), kOwn);
  const fs::path out = trained("own", chat({"data.chat_template=" + file("own.jinja").string()}));
  for (const fs::path& place : {out, out / "checkpoint-2"}) {
    EXPECT_EQ(read_file(place / "chat_template.jinja"), kOwn);
    EXPECT_EQ(read(place / "tokenizer_config.json")["chat_template"], kOwn);
    EXPECT_FALSE(fs::exists(place / "additional_chat_templates"));
  }
  export_gguf({out, file("own.gguf")}, std::nullopt);
  const GgufFile gguf = read_gguf(file("own.gguf"));
  EXPECT_EQ(std::get<std::string>(gguf.metadata.at("tokenizer.chat_template")), kOwn);
  // The next run into the same directory leaves nothing of it.
  trained("own", chat());
  EXPECT_EQ(read_file(out / "chat_template.jinja"), kChatMl);
  EXPECT_TRUE(fs::exists(out / "additional_chat_templates/tool_use.jinja"));
  fs::remove(model() / "chat_template.jinja");
  fs::remove_all(model() / "additional_chat_templates");
  trained("own", chat());
  EXPECT_FALSE(fs::exists(out / "chat_template.jinja"));
  EXPECT_FALSE(fs::exists(out / "additional_chat_templates"));
  EXPECT_EQ(read(out / "tokenizer_config.json")["chat_template"], kChatMl);
}

TEST_F(TaughtTest, ATemplateThatWritesNoSampleIsNotSaved) {
  write_atomically(file("own.jinja"), kOwn);
  const fs::path out = trained("text", {"data.chat_template=" + file("own.jinja").string()});
  EXPECT_FALSE(fs::exists(out / "chat_template.jinja"));
}

TEST_F(TaughtTest, AnAdapterThatIsTrainedFurtherKeepsItsTemplate) {
  write_atomically(file("own.jinja"), kOwn);
  const fs::path first =
      trained("first", chat({"lora.r=2", "data.chat_template=" + file("own.jinja").string()}));
  const fs::path second = trained("second", chat({"lora.adapter=" + first.string()}));
  EXPECT_EQ(read_file(second / "chat_template.jinja"), kOwn);
  EXPECT_EQ(read(second / "generation_config.json")["eos_token_id"], Json({base_end_, turn_end_}));
  export_model({second, file("merged")});
  EXPECT_EQ(read_file(file("merged") / "chat_template.jinja"), kOwn);
}

}  // namespace
}  // namespace trainer
