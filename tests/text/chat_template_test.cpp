// Chat templates as a user sees them: where they are found, what they are given, and errors when one fails.
#include "trainer/text/chat_template.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "trainer/base/error.h"
#include "trainer/base/files.h"

#include "support/error_message.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

using test::contains;
using test::error_message;
using test::TemporaryDirectory;
using Json = nlohmann::ordered_json;

const Json kGreeting = Json::parse(R"([{"role": "user", "content": "Hi"}])");

std::string render(const std::string& source, const Json& messages = kGreeting, const Json& tools = nullptr,
                   const Json& variables = nullptr) {
  return ChatTemplate({{"default", {source, "t.jinja"}}}, {}).render(messages, tools, variables);
}

ChatTemplate template_of(const std::string& source) {
  return ChatTemplate({{"default", {source, "t.jinja"}}}, {});
}

TEST(ChatTemplate, IsToldTheDayThatWasSet) {
  ChatTemplate dated = template_of("{{ strftime_now('%d %B %Y, %A, day %j, %H:%M:%S, %s') }}");
  dated.set_date("2026-05-31");
  EXPECT_EQ(dated.render(kGreeting), "31 May 2026, Sunday, day 151, 00:00:00, 1780185600");
  EXPECT_EQ(dated.date(), "2026-05-31");
  dated.set_date("2028-02-29");
  EXPECT_EQ(dated.render(kGreeting).substr(0, 16), "29 February 2028");
  dated.set_date("9999-12-31");
  EXPECT_EQ(dated.render(kGreeting).substr(0, 16), "31 December 9999");
  for (const char* no_day : {"2026-02-29", "2026-13-01", "2026-01-01x", "2026-01", "today", ""})
    EXPECT_TRUE(contains(error_message<ConfigError>([&] { dated.set_date(no_day); }), "is no day")) << no_day;
}

TEST(ChatTemplate, TheDateIsThatOfTheDayOnWhichItWasLoaded) {
  const std::string before = today();
  const ChatTemplate dated = template_of("{{ strftime_now('%Y-%m-%d') }}");
  const std::string day = dated.render(kGreeting);
  EXPECT_TRUE(day == before || day == today()) << day;
  EXPECT_EQ(dated.date(), day);
}

TEST(ChatTemplate, HasADateOnlyIfItAsksForIt) {
  EXPECT_EQ(template_of("{{ messages[0].content }} strftime_now").date(), "");
  EXPECT_NE(template_of("{% if strftime_now is defined %}{% endif %}").date(), "");
  EXPECT_NE(template_of("{% macro day() %}{{ strftime_now('%d') }}{% endmacro %}{{ day() }}").date(), "");
  EXPECT_NE(template_of("{% set clock = strftime_now %}{{ clock('%d') }}").date(), "");
}

TEST(ChatTemplate, ADirectoryWithoutTemplateHasNone) {
  const TemporaryDirectory directory;
  EXPECT_FALSE(load_chat_template(directory.path()));
}

TEST(ChatTemplate, TheConfiguredTemplateSeesTheSpecialTokens) {
  const TemporaryDirectory directory;
  write_atomically(directory.path() / "tokenizer_config.json", R"({
    "bos_token": {"content": "<s>", "special": true}, "eos_token": "</s>",
    "chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"})");
  EXPECT_EQ(load_chat_template(directory.path())->render(kGreeting), "<s>Hi</s>");
}

TEST(ChatTemplate, TheFileOverridesTheConfiguration) {
  const TemporaryDirectory directory;
  write_atomically(directory.path() / "tokenizer_config.json", R"({"chat_template": "configured"})");
  write_atomically(directory.path() / "chat_template.jinja", "from the file\n");
  EXPECT_EQ(load_chat_template(directory.path())->render(kGreeting), "from the file");
}

// A pointer is valid Jinja that writes itself.
TEST(ChatTemplate, APointerOfGitLfsIsNoTemplate) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n";
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory / "additional_chat_templates");
  for (const char* name : {"chat_template.jinja", "additional_chat_templates/tool_use.jinja"}) {
    std::ofstream(directory / name) << pointer;
    const auto said = error_message<FormatError>([&] { load_chat_template(directory.path()); });
    EXPECT_TRUE(contains(said, (directory / name).string())) << said;
    EXPECT_TRUE(contains(said, "git lfs pull")) << said;
    EXPECT_EQ(error_message<FormatError>([&] { read_chat_template(directory / name, directory.path()); }),
              said);
    std::filesystem::remove(directory / name);
  }
}

TEST(ChatTemplate, ToolsChooseTheTemplateForTools) {
  const TemporaryDirectory directory;
  write_atomically(directory.path() / "tokenizer_config.json", R"({"chat_template": [
    {"name": "default", "template": "plain"},
    {"name": "tool_use", "template": "{{ tools | map(attribute='name') | join(' ') }}"}]})");
  const auto chat = load_chat_template(directory.path());
  EXPECT_EQ(chat->render(kGreeting), "plain");
  EXPECT_EQ(chat->render(kGreeting, Json::parse(R"([{"name": "f"}, {"name": "g"}])")), "f g");
}

TEST(ChatTemplate, VariablesReachTheTemplateAndOverrideTheDefaults) {
  const char* source = "{{ add_generation_prompt }} {{ enable_thinking is defined and enable_thinking }}";
  EXPECT_EQ(render(source), "False False");
  EXPECT_EQ(render(source, kGreeting, nullptr, {{"add_generation_prompt", true}, {"enable_thinking", true}}),
            "True True");
}

TEST(ChatTemplate, KeysThatAreNullAreDropped) {
  EXPECT_EQ(
      render("{{ 'content' in messages[0] }}", Json::parse(R"([{"role": "assistant", "content": null}])")),
      "False");
}

TEST(ChatTemplate, ReasoningHasAllItsNames) {
  EXPECT_EQ(render("{{ messages[0].reasoning_content }} {{ messages[0].thinking }}",
                   Json::parse(R"([{"role": "assistant", "reasoning": "hm"}])")),
            "hm hm");
}

TEST(ChatTemplate, ARefusalByTheTemplateIsAboutTheDataAndNamesTheLine) {
  const std::string source = "\n{{ raise_exception('roles must alternate') }}";
  EXPECT_EQ(error_message<DataError>([&] { render(source); }),
            "t.jinja:2: the chat template refuses the conversation: roles must alternate");
}

TEST(ChatTemplate, UnsupportedFeaturesAreNamedWithTheirLine) {
  EXPECT_EQ(error_message<FormatError>([] { render("a\n{% include 'x' %}"); }),
            "t.jinja:2: chat template: not supported: the tag 'include'");
  EXPECT_EQ(error_message<FormatError>([] { render("{% for a in b recursive %}{% endfor %}"); }),
            "t.jinja:1: chat template: not supported: recursive loops");
  EXPECT_EQ(error_message<FormatError>([] { render("\n\n{{ 1 | pprint }}"); }),
            "t.jinja:3: chat template: not supported: the filter 'pprint'");
  EXPECT_EQ(error_message<FormatError>([] { render("{{ 1 | nonsense }}"); }),
            "t.jinja:1: chat template: no filter named 'nonsense'");
  EXPECT_THROW(render("{{ 'a'.encode() }}"), FormatError);
}

TEST(ChatTemplate, WidePaddingIsRefusedBeforeItTakesMemory) {
  for (const char* source :
       {"{{ '%99999999999d' % 1 }}", "{{ '%10001s' % 'a' }}", "{{ '%*d' % (10001, 1) }}",
        "{{ '%-*d' % (-9223372036854775807 - 1, 1) }}", "{{ '{:10001}'.format(1) }}",
        "{{ 'a'.ljust(100001) }}", "{{ 'a'.center(9223372036854775807) }}", "{{ '7'.zfill(100001) }}"}) {
    const std::string message = error_message<DataError>([&] { render(source); });
    EXPECT_TRUE(contains(message, "too large") || contains(message, "Too many")) << source << ": " << message;
  }
  EXPECT_EQ(render("{{ ('%10000d' % 1) | length }} {{ '%-3d|' % 1 }}"), "10000 1  |");
}

TEST(ChatTemplate, AMissingAttributeSaysWhichAndWhere) {
  EXPECT_EQ(
      error_message<DataError>([] { render("\n{{ messages[0].tool.name }}"); }),
      "t.jinja:2: the chat template cannot handle the conversation: 'dict object' has no attribute 'tool'");
}

}  // namespace
}  // namespace trainer
