// A chat template comes from a downloaded model directory and may do anything. It still ends soon, with the
// text or with an error that names the line.
#include <pthread.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/text/chat_template.h"

#include "support/error_message.h"

namespace trainer {
namespace {

using test::contains;
using Json = nlohmann::ordered_json;

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; i++) out += text;
  return out;
}

// On a thread with a stack of 1 MB, as `ulimit -s 1024` gives to those that read data.
void on_small_stack(const std::function<void()>& work) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 1 << 20);
  pthread_t thread;
  const auto run = [](void* given) -> void* {
    (*static_cast<const std::function<void()>*>(given))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, const_cast<std::function<void()>*>(&work)), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

// What is rendered, or the error.
std::string outcome(const std::string& source, const Json& messages = Json::parse(R"([{"role": "user"}])")) {
  std::string result;
  on_small_stack([&] {
    try {
      result = ChatTemplate({{"default", {source, "t.jinja"}}}, {}).render(messages);
    } catch (const Error& error) {
      result = error.what();
    }
  });
  return result;
}

TEST(TemplateLimits, LongChainsOfOperatorsAreWorkedOut) {
  constexpr int kLinks = 20'000;
  EXPECT_EQ(outcome("{{ 1" + repeated(" + 1", kLinks) + " }}"), std::to_string(kLinks + 1));
  EXPECT_EQ(outcome("{{ 1" + repeated(" * 1", kLinks) + " }}"), "1");
  EXPECT_EQ(outcome("{{ 1" + repeated(" ** 1", kLinks) + " }}"), "1");
  EXPECT_EQ(outcome("{{ 1" + repeated(" and 1", kLinks) + " }}"), "1");
  EXPECT_EQ(outcome("{{ 0" + repeated(" or 0", kLinks) + " }}"), "0");
  EXPECT_EQ(outcome("{{ ''" + repeated(" ~ 'a'", kLinks) + " }}"), repeated("a", kLinks));
  EXPECT_EQ(outcome("{{ 'a'" + repeated(" | trim", kLinks) + " }}"), "a");
  EXPECT_EQ(outcome("{{ 'a'" + repeated("[0]", kLinks) + " }}"), "a");
  EXPECT_EQ(outcome("{{ 'a'" + repeated(".strip()", kLinks) + " }}"), "a");
  EXPECT_EQ(outcome("{{ 'a'" + repeated(" if 1", kLinks) + " }}"), "a");
  EXPECT_EQ(outcome("{% if 0 %}" + repeated("{% elif 0 %}", kLinks) + "{% else %}a{% endif %}"), "a");
}

TEST(TemplateLimits, DeepNestingIsRefusedWithTheLine) {
  constexpr int kLevels = 20'000;
  for (const auto& [open, close] : std::vector<std::pair<std::string, std::string>>{
           {"{{ " + repeated("(", kLevels), "1" + repeated(")", kLevels) + " }}"},
           {"{{ " + repeated("[", kLevels), repeated("]", kLevels) + " }}"},
           {"{{ " + repeated("{1:", kLevels), "1" + repeated("}", kLevels) + " }}"},
           {"{{ " + repeated("not ", kLevels), "1 }}"},
           {"{{ " + repeated("-", kLevels), "1 }}"},
           {"{{ " + repeated("1 if 1 else ", kLevels), "1 }}"},
           {"{% set " + repeated("(", kLevels), "a" + repeated(")", kLevels) + " = 1 %}"},
           {repeated("{% if 1 %}", kLevels), repeated("{% endif %}", kLevels)}}) {
    const std::string message = outcome("\n" + open + close);
    EXPECT_TRUE(contains(message, "t.jinja:2: ")) << message.substr(0, 200);
    EXPECT_TRUE(contains(message, "nested too deeply")) << message.substr(0, 200);
  }
}

TEST(TemplateLimits, ValuesThatNestAtRunTimeAreRefusedWhereTheyAreReadThrough) {
  const auto nested = [](const std::string& layer, const std::string& use) {
    return outcome(
        "{% set ns = namespace(x=1, y=1) %}{% for i in range(50000) %}{% set ns.y = ns.x %}{% set ns.x = " +
        layer + " %}{% endfor %}\n" + use);
  };
  for (const char* layer : {"[ns.x]", "(ns.x,)", "{'a': ns.x}", "[ns.x].copy", "[ns.x] | map('default')",
                            "{'a': ns.x}.items()", "namespace(x=ns.x)"})
    EXPECT_EQ(nested(layer, "fine"), "fine") << layer;  // to let go of them is no recursion
  for (const char* layer : {"[ns.x]", "(ns.x,)", "{'a': ns.x}"}) {
    for (const char* use :
         {"{{ ns.x }}", "{{ ns.x == [ns.y] }}{{ ns.x == (ns.y,) }}{{ ns.x == {'a': ns.y} }}"}) {
      const std::string message = nested(layer, use);
      EXPECT_TRUE(contains(message, "t.jinja:2: ") && contains(message, "nested too deeply"))
          << layer << use << message;
    }
  }
  for (const char* use :
       {"{{ ns.x | tojson }}", "{{ ns.x < [ns.y] }}", "{{ [ns.x] | unique | list | length }}"})
    EXPECT_TRUE(contains(nested(use[3] == '[' ? "(ns.x,)" : "[ns.x]", use), "nested too deeply")) << use;
}

TEST(TemplateLimits, AConversationMayNestAsDeepAsARow) {
  std::string deep = repeated("[", 990) + repeated("]", 990);
  const Json messages = Json::parse(R"([{"role": "user", "content": )" + deep + "}]");
  const std::string result = outcome("{{ messages[0].content }}", messages);
  EXPECT_TRUE(result == deep || contains(result, "nested too deeply")) << result;
}

TEST(TemplateLimits, WorkWithoutEndStopsAndNamesTheLine) {
  for (const char* source :
       {"{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}\n{{ m(100) }}",
        "{% set ns = namespace(x='a') %}\n{% for i in range(100) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% set ns = namespace(x='a') %}\n{% for i in range(100) %}{% set ns.x = ns.x.replace('a', 'aa') "
        "%}{% endfor %}",
        "{% set ns = namespace(x=[1]) %}\n{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "\n{{ [1] | batch(10 ** 15, 0) | list }}",
        "\n{% for a in range(100000) %}{{ 'a' * 100000 }}{% endfor %}"}) {
    const std::string message = outcome(source);
    EXPECT_TRUE(contains(message, "t.jinja:") && contains(message, "the chat template takes "))
        << source << ": " << message.substr(0, 200);
    EXPECT_TRUE(contains(message, "use another template")) << message.substr(0, 200);
  }
}

TEST(TemplateLimits, RepeatingNothingIsNothing) {
  EXPECT_EQ(outcome("[{{ '' * 10 ** 18 }}{{ [] * 10 ** 18 }}]"), "[[]]");
}

TEST(TemplateLimits, LongConversationsAreFarBelow) {
  Json messages = Json::array();
  for (int i = 0; i < 20'000; i++)
    messages.push_back({{"role", i % 2 ? "assistant" : "user"}, {"content", repeated("Some words. ", 50)}});
  const std::string source =
      "{%- set ns = namespace(last=0) %}{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last = "
      "loop.index0 "
      "%}{%- endif %}{%- endfor %}{%- for m in messages %}{%- set content = m.content | trim %}{%- if "
      "'</think>' in "
      "content %}{%- set content = content.split('</think>')[-1].lstrip('\\n') %}{%- endif %}{{- "
      "'<|im_start|>' + m.role "
      "+ '\\n' + content + '<|im_end|>\\n' }}{%- endfor %}{{ messages | tojson | length }}";
  const std::string text = outcome(source, messages);
  EXPECT_GT(text.size(), size_t{12'000'000}) << text.substr(0, 200);
}

TEST(TemplateLimits, ANamespaceThatHoldsItselfIsLetGo) {
  EXPECT_EQ(
      outcome("{% set ns = namespace(x='a' * 1000) %}{% set ns.self = [ns] %}{{ ns.self[0].x | length }}"),
      "1000");
}

}  // namespace
}  // namespace trainer
