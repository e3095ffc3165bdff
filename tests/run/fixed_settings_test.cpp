// The settings that a resumed run compares with those of its earlier start.
#include "run/fixed_settings.h"

#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/config/load.h"

#include "config/schema.h"
#include "run/output_directory.h"
#include "support/error_message.h"
#include "support/golden_directory.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using test::contains;
using Overrides = std::vector<std::string>;

// "" where a start is accepted.
template <class Check>
std::string refusal_of(const Check& check) {
  try {
    check();
  } catch (const OutputDirectoryError& error) {
    return error.what();
  }
  return "";
}

// A model and data that a test may change.
class ComparedSettings : public testing::Test {
 protected:
  ComparedSettings() {
    fs::copy(golden_directory("qwen2") / "model", model(), fs::copy_options::recursive);
    put(model() / "tokenizer_config.json", R"({"eos_token": "a"})");
    put(folder_ / "data.jsonl", "{\"text\": \"a\"}\n");
    put(folder_ / "template.jinja", "{{ messages }}");
  }

  fs::path model() const { return folder_ / "model"; }
  static void put(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }

  Config config(const Overrides& overrides = {}) const {
    Overrides all{concat("model.path=", model().string()),
                  concat("data.train=", (folder_ / "data.jsonl").string()),
                  "training.effective_batch_size=8"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    return load_config(std::nullopt, all);
  }

  std::string refusal(const std::map<std::string, std::string>& saved, const Config& now) {
    logged_.clear();
    return refusal_of([&] { check_fixed_settings(saved, fixed_settings(now), now, "there", logged_); });
  }

  test::TemporaryDirectory folder_;
  std::set<std::string> logged_;
};

TEST_F(ComparedSettings, HaveAnEntryForEveryKeyThatIsMarked) {
  const auto fixed = fixed_settings(
      config({"lora={}", "model.dtype=fp32", "data.eval=0.5", "data.template_date=2026-05-31"}));
  std::set<std::string> keys;
  for (const auto& [entry, value] : fixed) keys.insert(entry.substr(0, entry.find(' ')));
  std::set<std::string> marked;
  for (const OnResume mark : {OnResume::is_logged, OnResume::fixes_run, OnResume::fixes_run_by_content}) {
    for (const std::string& key : keys_marked(mark)) marked.insert(key);
  }
  for (const char* key : {"lora.adapter", "objective.teacher", "objective.logits"})
    marked.erase(key);  // there is none
  EXPECT_EQ(keys, marked);
}

TEST_F(ComparedSettings, RefuseAnotherValueUnlessItIsAccepted) {
  const auto saved = fixed_settings(config());
  const std::pair<const char*, const char*> changes[] = {
      {"seed", "7"},
      {"data.loss_on", "everything"},
      {"data.kind", "text"},
      {"data.input", "{text}"},
      {"data.target", "text"},
      {"data.max_source_length", "10"},
      {"data.max_target_length", "10"},
      {"data.max_length", "10"},
      {"data.long_samples", "drop"},
      {"data.truncation_side", "left"},
      {"data.max_samples", "3"},
      {"data.shuffle", "false"},
      {"data.eval", "0.5"},
      {"model.add_tokens", "[x]"},
      {"model.quantize", "nf4"},
      {"training.effective_batch_size", "4"},
      {"optimizer.master_weights", "true"},
      {"optimizer.state_dtype", "fp32"},
      {"lora.r", "2"},
  };
  for (const auto& [key, value] : changes) {
    const std::string change = concat(key, "=", value);
    EXPECT_TRUE(contains(refusal(saved, config({change})), concat("\n  ", key, ": "))) << change;
    const std::string all = concat("resume_changed=[", key, ",", join(keys_of_section("lora"), ","), "]");
    EXPECT_EQ(refusal(saved, config({change, all})), "") << change;
    EXPECT_FALSE(logged_.empty()) << change;
  }
  EXPECT_TRUE(contains(refusal(fixed_settings(config({"model.quantize=nf4"})),
                               config({"model.quantize=nf4", "model.double_quant=false"})),
                       "\n  model.double_quant: "));
}

TEST_F(ComparedSettings, TheDateOfTheRunStaysUnlessTheConfigurationNamesAnother) {
  auto saved = fixed_settings(config());
  saved[kTemplateDate] = "2026-05-31";
  auto now = fixed_settings(config());
  keep_open_settings(saved, now);
  EXPECT_EQ(now.at(kTemplateDate), "2026-05-31");
  EXPECT_EQ(refusal(saved, config({"data.template_date=2026-05-31"})), "");
  EXPECT_TRUE(contains(refusal(saved, config({"data.template_date=2026-09-01"})),
                       "data.template_date: 2026-05-31 there, 2026-09-01 here; data.template_date=2026-05-31 "
                       "keeps it"));
}

TEST_F(ComparedSettings, LogWhatChangesTheResultOnPurpose) {
  const auto saved = fixed_settings(config());
  EXPECT_EQ(refusal(saved, config({"learning_rate=1e-3", "training.dropout=0.5", "max_steps=9"})), "");
  EXPECT_EQ(logged_.size(), 3u);
  EXPECT_TRUE(logged_.contains("training.max_steps: -1 there, 9 here"));
}

TEST_F(ComparedSettings, LeaveTheRestAlone) {
  const auto saved = fixed_settings(config());
  EXPECT_EQ(refusal(saved, config({"batch_size=2", "device=cpu", "data.packing=true", "data.bad_rows=skip",
                                   "num_workers=7", "eval_strategy=epoch", "save.steps=3"})),
            "");
  EXPECT_TRUE(logged_.empty());
}

TEST_F(ComparedSettings, NameTheFileOfAModelThatChanged) {
  const auto saved = fixed_settings(config());
  const auto refused_as = [&](const std::string& entry, const std::string& there_and_here = "") {
    const std::string message = refusal(saved, config());
    EXPECT_TRUE(contains(message, concat("\n  model.path ", entry, ": ", there_and_here))) << message;
    EXPECT_TRUE(contains(message, "'resume_changed=[model.path]'")) << message;
    EXPECT_EQ(refusal(saved, config({"resume_changed=model.path"})), "");
  };
  put(model() / "tokenizer_config.json", R"({"eos_token": "b"})");
  refused_as("tokenizer_config.json", "18 bytes, xxh3 ");
  fs::remove(model() / "tokenizer_config.json");
  refused_as("tokenizer_config.json", "18 bytes, xxh3 ");
  put(model() / "tokenizer_config.json", R"({"eos_token": "a"})");
  EXPECT_EQ(refusal(saved, config()), "");
  for (const char* name : {"tokenizer.json", "spiece.model", "special_tokens_map.json", "added_tokens.json",
                           "chat_template.jinja"}) {
    put(model() / name, "{}");
    refused_as(name, "none there, 2 bytes, xxh3 ");
    fs::remove(model() / name);
  }
  fs::create_directories(model() / "additional_chat_templates");
  put(model() / "additional_chat_templates/tool_use.jinja", "{{ tools }}");
  refused_as("additional_chat_templates", "none there, 1 file, xxh3 ");
  fs::remove_all(model() / "additional_chat_templates");
  EXPECT_EQ(refusal(saved, config()), "");
}

TEST_F(ComparedSettings, SeeEachByteOfTheWeights) {
  const auto saved = fixed_settings(config());
  const fs::path file = model() / "model.safetensors";
  const auto size = static_cast<std::streamoff>(fs::file_size(file));
  for (const std::streamoff back : {1, 300, 1000}) {
    std::fstream weights(file, std::ios::in | std::ios::out | std::ios::binary);
    weights.seekg(size - back);
    const char old = static_cast<char>(weights.get());
    const auto set = [&](char byte) { weights.seekp(size - back).put(byte).flush(); };
    set(static_cast<char>(old ^ 1));
    EXPECT_TRUE(contains(refusal(saved, config()), "\n  model.path weights: xxh3 of parts ")) << back;
    set(old);
    EXPECT_EQ(refusal(saved, config()), "") << back;
  }
}

// The checksum is that of parts of 1 MiB, which several threads take.
TEST_F(ComparedSettings, SeeEachPartOfALongTensor) {
  const size_t part = size_t{1} << 20U, bytes = 2 * part + 4;
  const std::string header =
      concat(R"({"long":{"dtype":"U8","shape":[)", bytes, R"(],"data_offsets":[0,)", bytes, "]}}");
  const auto write = [&](size_t changed) {
    std::string content(bytes, 'a');
    if (changed < bytes) content[changed] = 'b';
    const uint64_t length = header.size();
    std::ofstream(model() / "model.safetensors", std::ios::binary)
            .write(reinterpret_cast<const char*>(&length), sizeof(length))
        << header << content;
  };
  write(bytes);
  const auto saved = fixed_settings(config());
  for (const size_t changed : {part - 1, part, 2 * part - 1, bytes - 1}) {
    write(changed);
    EXPECT_TRUE(contains(refusal(saved, config()), "\n  model.path weights: xxh3 of parts ")) << changed;
  }
  write(bytes);
  EXPECT_EQ(refusal(saved, config()), "");
}

TEST_F(ComparedSettings, KnowAChatTemplateByContent) {
  const std::string file = (folder_ / "template.jinja").string(), moved = (folder_ / "moved.jinja").string();
  fs::copy(file, moved);
  const auto saved = fixed_settings(config({"data.chat_template=" + file}));
  EXPECT_EQ(refusal(saved, config({"data.chat_template=" + moved})), "");
  EXPECT_TRUE(contains(refusal(saved, config()), "\n  data.chat_template: 14 bytes, xxh3 "));
  put(moved, "{{ messages[0] }}");
  EXPECT_TRUE(
      contains(refusal(saved, config({"data.chat_template=" + moved})), "\n  data.chat_template: 14"));
}

// A trainer_position.json of a version that compared fewer keys and kept no checksum.
TEST_F(ComparedSettings, OfAnEarlierVersionAreComparedAsFarAsTheyGo) {
  const auto now = fixed_settings(config({"lora.r=2"}));
  nlohmann::json fixed{{"seed", "42"}};
  for (const char* key : {"model.path", "data.train", "data.kind", "data.max_length", "optimizer.name",
                          "lora.r", "lora.lora_alpha", "training.effective_batch_size"})
    fixed[key] = now.at(key);
  fixed["model.path weights"] = "xxh3 0123456789abcdef";  // of all bytes in one piece
  const nlohmann::json old{{"step", 3},         {"samples_seen", 24}, {"total_steps", 9},
                           {"dataset_size", 8}, {"metrics_bytes", 0}, {"fixed", fixed}};
  put(folder_ / kPositionFile, old.dump());
  RunPosition position = read_position(folder_.path());
  EXPECT_EQ(refusal(position.fixed, config({"lora.r=2", "data.loss_on=everything"})), "");
  EXPECT_TRUE(
      contains(refusal(position.fixed, config({"lora.r=2", "seed=7"})), "\n  seed: 42 there, 7 here"));
  EXPECT_TRUE(contains(refusal(position.fixed, config()), "\n  lora.r: 2 there, - here"));
  EXPECT_TRUE(
      contains(refusal(position.fixed, config({"lora.r=2", "data.eval=0.5"})), "\n  data.eval: - there"));
  // It knows how many samples there were.
  const auto samples = [&](int64_t count) {
    RunPosition copy = position;
    return refusal_of([&] { check_samples(copy, "text", count, config()); });
  };
  EXPECT_EQ(samples(8), "");
  EXPECT_TRUE(contains(samples(5), "8 samples in an epoch there, 5 samples in an epoch here"));
}

TEST_F(ComparedSettings, OtherSamplesAreRefusedWhateverTheyComeFrom) {
  RunPosition position;
  check_samples(position, "3 samples, xxh3 a", 3, config());  // a run that begins
  const auto saved = position.fixed;
  const auto message_of = [&](const Overrides& overrides) {
    const Config now = config(overrides);
    RunPosition again;
    keep_open_settings(saved, again.fixed);
    return refusal_of([&] { check_samples(again, "3 samples, xxh3 b", 3, now); });
  };
  const std::string message = message_of({});
  EXPECT_TRUE(contains(message, "data.train samples: 3 samples, xxh3 a there, 3 samples, xxh3 b here"))
      << message;
  EXPECT_TRUE(contains(message, "'resume_changed=[data.train]'"));
  EXPECT_NE(message_of({"resume_changed=seed"}), "");
  EXPECT_EQ(message_of({"resume_changed=data.train"}), "");
  EXPECT_EQ(message_of({"resume_changed=data.chat_template"}), "");  // they follow from it
}

}  // namespace
}  // namespace trainer
