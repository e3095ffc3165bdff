// What the tests of this layer share: a word tokenizer, and data files in their own folder.
#pragma once

#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/data/dataset.h"

namespace trainer {

// Splits at spaces. The ids: "one" to "six" are 4 to 9, numbers from 10 on are themselves, single letters are
// 100 and up, <pad> is 0, </s> 1, <s> 3, and any other word is <unk> (2).
class WordTokenizer : public Tokenizer {
 public:
  enum class Specials { eos_after, bos_before, none };
  explicit WordTokenizer(Specials specials = Specials::eos_after) : specials_(specials) {}

  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens) const override {
    std::vector<int32_t> ids;
    if (add_special_tokens && specials_ == Specials::bos_before) ids.push_back(3);
    std::istringstream words{std::string(text)};
    for (std::string word; words >> word;) ids.push_back(token_to_id(word).value_or(2));
    if (add_special_tokens && specials_ == Specials::eos_after) ids.push_back(1);
    return ids;
  }
  TokenizedText encode_with_ranges(std::string_view text, bool add_special_tokens) const override {
    TokenizedText out{encode(text, add_special_tokens), {}};
    size_t at = 0;
    for (size_t i = 0; i < out.ids.size(); i++) {
      const bool added = add_special_tokens && (specials_ == Specials::bos_before  ? i == 0
                                                : specials_ == Specials::eos_after ? i + 1 == out.ids.size()
                                                                                   : false);
      const size_t begin = added ? at : text.find_first_not_of(' ', at);
      if (!added) at = std::min(text.find(' ', begin), text.size());
      out.ranges.push_back({begin, at});
    }
    return out;
  }
  std::string decode(std::span<const int32_t>, bool) const override { return ""; }
  int64_t vocab_size() const override { return 1000; }
  std::optional<int32_t> token_to_id(std::string_view token) const override {
    static const std::vector<std::string> names{"<pad>", "</s>",  "<unk>", "<s>",  "one",
                                                "two",   "three", "four",  "five", "six"};
    for (size_t i = 0; i < names.size(); i++) {
      if (names[i] == token) return static_cast<int32_t>(i);
    }
    int32_t number = 0;
    const auto parsed = std::from_chars(token.data(), token.data() + token.size(), number);
    if (parsed.ec == std::errc() && parsed.ptr == token.data() + token.size() && number >= 10) return number;
    if (token.size() == 1 && token[0] >= 'a' && token[0] <= 'z') return 100 + token[0] - 'a';
    return std::nullopt;
  }
  std::optional<int32_t> eos_id() const override { return 1; }
  std::optional<int32_t> pad_id() const override { return 0; }
  std::optional<int32_t> unk_id() const override { return 2; }
  std::string fingerprint() const override { return concat("words ", static_cast<int>(specials_)); }
  void add_tokens(const std::vector<std::string>&) override {}

 private:
  Specials specials_;
};

class DataTest : public testing::Test {
 protected:
  DataTest() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              concat("trainer_", ::getpid(), "_", test->test_suite_name(), "_", test->name());
    std::filesystem::create_directories(folder_);
  }
  ~DataTest() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, std::string_view content) const {
    const std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }

  Dataset open(const std::string& path, bool encoder_decoder = true) const {
    return Dataset::open({path}, config_, encoder_decoder ? t5_ : decoder_, encoder_decoder);
  }
  // Opens a file "data.jsonl" with this content.
  Dataset data(std::string_view content, bool encoder_decoder = true) const {
    return open(write("data.jsonl", content), encoder_decoder);
  }

  // Opens the data and returns the message of its error, without the folder's name; "" if there is no error.
  template <class ErrorType = DataError>
  std::string error(std::string_view content, bool encoder_decoder = true) const {
    return error_of<ErrorType>([&] { data(content, encoder_decoder); });
  }
  template <class ErrorType = DataError, class Action>
  std::string error_of(const Action& action) const {
    try {
      action();
    } catch (const ErrorType& e) {
      std::string message = e.what();
      const std::string prefix = folder_.string() + "/";
      for (size_t at; (at = message.find(prefix)) != std::string::npos;) message.erase(at, prefix.size());
      return message;
    }
    return "";
  }

  std::filesystem::path folder_;
  Config config_;
  WordTokenizer t5_{WordTokenizer::Specials::eos_after};
  WordTokenizer decoder_{WordTokenizer::Specials::bos_before};
};

// For messages: EXPECT_TRUE(starts(message, "data.jsonl:2: ")) shows the message if it fails.
inline testing::AssertionResult has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos)
    return testing::AssertionSuccess() << "'" << part << "' is in: " << text;
  return testing::AssertionFailure() << "'" << part << "' is not in: " << text;
}
inline testing::AssertionResult starts(const std::string& text, const std::string& begin) {
  if (text.starts_with(begin)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "does not start with '" << begin << "': " << text;
}
inline testing::AssertionResult ends(const std::string& text, const std::string& end) {
  if (text.ends_with(end)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "does not end with '" << end << "': " << text;
}

using Ids = std::vector<int32_t>;

}  // namespace trainer
