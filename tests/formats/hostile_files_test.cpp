// Files whose values are of the wrong kind, absurd or malformed: each reader accepts them or throws an error
// of ours, without a word of a library.
#include <filesystem>
#include <fstream>
#include <functional>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/log.h"
#include "trainer/formats/checkpoint.h"
#include "trainer/formats/model_directory.h"
#include "trainer/formats/peft.h"
#include "trainer/formats/run_position.h"
#include "trainer/formats/safetensors.h"

#include "base/checksum.h"
#include "formats/optimizer_state.h"
#include "formats/run_status.h"
#include "formats/trainer_state.h"
#include "support/hostile_json.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using test::TemporaryDirectory;
using test::wrong_words;

const fs::path kGoldenFiles = fs::path(SOURCE_DIR) / "tests/goldens";

void put(const fs::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << text;
}

// Reads each hostile variant of `json`, written as `name` into `directory`. Returns how many were read.
int read_all(const TemporaryDirectory& directory, const std::string& name, const std::string& json,
             const std::function<void()>& read) {
  log::set_level(log::Level::error);
  int count = 0, failed = 0;
  test::for_each_hostile(json, [&](const std::string& text, const std::string& what) {
    put(directory / name, text);
    const std::string wrong = wrong_words(read);
    if (!wrong.empty() && ++failed <= 20) ADD_FAILURE() << name << ": " << what << ": " << wrong;
    count++;
  });
  log::set_level(log::Level::info);
  EXPECT_EQ(failed, 0);
  return count;
}

TEST(HostileFiles, ConfigOfAModel) {
  const TemporaryDirectory directory(test::memory_path());
  for (const char* model : {"qwen2_yarn", "gemma3", "t5_v1_0"}) {
    const std::string json = read_file(kGoldenFiles / "models" / model / "model/config.json");
    const int count = read_all(directory, "config.json", json, [&] { read_model_config(directory.path()); });
    EXPECT_GT(count, 500) << model;
  }
}

// What is wrong, not only where: the causes that files of rows are told of.
TEST(HostileFiles, CauseInAFileOfAModel) {
  const TemporaryDirectory directory(test::memory_path());
  const auto said = [&](const std::string& text) -> std::string {
    put(directory / "config.json", text);
    try {
      read_model_config(directory.path());
    } catch (const FormatError& error) {
      return error.what();
    }
    return "";
  };
  const auto says = [&](const std::string& text, const std::string& words) {
    const std::string message = said(text);
    EXPECT_NE(message.find(words), std::string::npos) << message;
    EXPECT_NE(message.find("config.json"), std::string::npos) << message;
  };
  says("{\"a\": 1,\n \"b\": NaN}", "2:7: is not valid JSON: NaN is no value of JSON");
  says("{\"a\": \"\\ud800\"}", "1:8: is not valid JSON: \\ud800 is half of a character");
  says("{\"a\": 1,}", "a comma before a }");
  says("{'a': 1}", "a single quote");
  says("{\"a\": {\"b\": 1}", "1:1: is not valid JSON: an object that begins here is not closed: the end of");
  says("{\"a\": 1} 2", "there is more text after the end of the object; mend that, or copy");
  says("{\"a\": \"\xe9t\xe9\"}", "is not UTF-8 here");
  says(std::string("\x1f\x8b\x08\0\0", 5), "is compressed with gzip; unpack it");
  says(std::string("\xff\xfe{\0}\0", 6), "is UTF-16; save the file as UTF-8");
  says("version https://git-lfs.github.com/spec/v1\n", "git lfs pull");
  says("<!DOCTYPE html>", "a page of HTML");
  says("\x1b", "1:1: is not valid JSON here");
}

TEST(HostileFiles, ConfigOfAnAdapter) {
  const TemporaryDirectory directory(test::memory_path());
  const std::string json = read_file(kGoldenFiles / "models/llama_patterns/adapter/adapter_config.json");
  const int count = read_all(directory, "adapter_config.json", json, [&] {
    read_adapter_config(directory.path());
    base_directory(directory.path());
  });
  EXPECT_GT(count, 500);
}

TEST(HostileFiles, IndexOfWeights) {
  const TemporaryDirectory directory(test::memory_path());
  fs::copy(kGoldenFiles / "formats/llama_sharded", directory.path(), fs::copy_options::recursive);
  const std::string name = "model.safetensors.index.json", json = read_file(directory / name);
  EXPECT_GT(read_all(directory, name, json, [&] { read_model_weights(directory.path()); }), 100);
}

TEST(HostileFiles, HeaderOfWeights) {
  const TemporaryDirectory directory(test::memory_path());
  const std::string json =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  const auto with_length = [](const std::string& header) {
    uint64_t length = header.size();
    std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
    return bytes + header + std::string(4, '\0');
  };
  test::for_each_hostile(json, [&](const std::string& text, const std::string& what) {
    put(directory / "model.safetensors", with_length(text));
    EXPECT_EQ(wrong_words([&] { read_safetensors(directory / "model.safetensors"); }), "") << what;
  });
  for (const uint64_t length : {uint64_t{1} << 63, ~uint64_t{0}, uint64_t{1} << 62}) {
    put(directory / "model.safetensors",
        std::string(reinterpret_cast<const char*>(&length), sizeof length) + json);
    EXPECT_EQ(wrong_words([&] { read_safetensors(directory / "model.safetensors"); }), "") << length;
  }
}

TEST(HostileFiles, StateOfTransformers) {
  const TemporaryDirectory directory(test::memory_path());
  const std::string json = read_file(kGoldenFiles / "formats/trainer_state.json");
  EXPECT_GT(read_all(directory, kTrainerStateFile, json, [&] { read_trainer_state(directory.path()); }), 500);
}

TEST(HostileFiles, PositionOfARun) {
  const TemporaryDirectory directory(test::memory_path());
  RunPosition position;
  position.step = 3;
  position.dataset_size = 8;
  position.fixed = {{"seed", "42"}};
  const std::string json = position_text(position);
  EXPECT_GT(read_all(directory, kPositionFile, json, [&] { read_position(directory.path()); }), 200);
  for (const std::string& text : test::malformed(json))
    EXPECT_EQ(wrong_words([&] { position_from(text, "rank 1"); }), "") << text.substr(0, 40);
}

// With the right checksum of its own: a wrong one would stop nearly all.
TEST(HostileFiles, ManifestOfACheckpoint) {
  const TemporaryDirectory directory(test::memory_path());
  const fs::path checkpoint = directory / "checkpoint-5";
  fs::create_directory(checkpoint);
  put(checkpoint / "a", "abc");
  const std::string json =
      R"({"xxh3_64":"0000000000000000","format_version":1,"program_version":"1","step":5,)"
      R"("files":{"a":{"bytes":3,"xxh3_64":"0123456789abcdef"}}})";
  test::for_each_hostile(json, [&](std::string text, const std::string& what) {
    if (const size_t at = text.find("\":\""); at != std::string::npos && text.size() > at + 19) {
      text.replace(at + 3, 16, 16, '0');
      text.replace(at + 3, 16, checksum(text));
    }
    put(checkpoint / kManifestFile, text);
    EXPECT_EQ(wrong_words([&] { read_checkpoint(checkpoint); }), "") << what;
    EXPECT_EQ(wrong_words([&] {
                newest_complete_checkpoint(directory.path(), {}, [&](const std::string& skipped) {
                  EXPECT_EQ(test::foreign_words(skipped), "") << skipped;
                });
              }),
              "")
        << what;
  });
}

TEST(HostileFiles, StateOfAnOptimizer) {
  const TemporaryDirectory directory(test::memory_path());
  for (const std::string& text : test::malformed("{}")) {
    put(directory / kOptimizerFile, text);
    EXPECT_EQ(wrong_words([&] { read_optimizer_state(directory.path()); }), "") << text.substr(0, 40);
  }
}

// Whatever the file says, what is shown of a run are numbers that a run can have.
TEST(HostileFiles, StatusOfARun) {
  const TemporaryDirectory directory(test::memory_path());
  RunStatus status;
  status.state = RunPhase::running;
  status.model = "/models/t5";
  status.step = 10;
  status.total_steps = 40;
  status.loss = 1.5;
  status.memory_peak = 1e9;
  status.seconds_left = 60;
  status.updated = 1e6;
  const auto check = [&] {
    const RunStatus read = read_run_status(directory.path(), 1e6);
    EXPECT_LE(std::abs(static_cast<double>(read.step)), 1e15);
    EXPECT_LE(std::abs(read.memory_peak.value_or(0)), 1e15);
    EXPECT_LE(std::abs(read.updated.value_or(0)), 1e15);
  };
  EXPECT_GT(read_all(directory, kStatusFile, to_json(status).dump(), check), 200);
  fs::remove(directory / kStatusFile);
  const std::string row = R"({"kind":"train","step":3,"loss":2.5,"memory_peak":1000})";
  EXPECT_GT(read_all(directory, "metrics.jsonl", row, check), 50);
}

}  // namespace
}  // namespace trainer
