// A chat template comes from a downloaded model directory and may contain anything. Rendering still ends
// soon, with the text or with an error that names the line.
#include <pthread.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/text/chat_template.h"

#include "support/error_message.h"
#include "support/long_case.h"

namespace trainer {
namespace {

using test::contains;
using Json = nlohmann::ordered_json;

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; i++) out += text;
  return out;
}

// Runs the work on a thread with a stack of 1 MB. With `ulimit -s 1024`, the threads that read data have that
// much.
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

// Returns the rendered text, or the error.
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

TEST(TemplateLimits, LongChainsOfOperatorsAreEvaluated) {
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

TEST(TemplateLimits, DeeplyNestedValuesAreRefusedWhereTheyAreRead) {
  const auto nested = [](const std::string& layer, const std::string& use) {
    return outcome(
        "{% set ns = namespace(x=1, y=1) %}{% for i in range(50000) %}{% set ns.y = ns.x %}{% set ns.x = " +
        layer + " %}{% endfor %}\n" + use);
  };
  for (const char* layer : {"[ns.x]", "(ns.x,)", "{'a': ns.x}", "[ns.x].copy", "[ns.x] | map('default')",
                            "{'a': ns.x}.items()", "namespace(x=ns.x)"})
    EXPECT_EQ(nested(layer, "fine"), "fine") << layer;  // freeing them does not recurse
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

// Each of these takes minutes or many gigabytes when its cost is not counted.
TEST(TemplateLimits, NoExpressionRunsWithoutEnd) {
  TRAINER_LONG_CASE();
  for (const char* expression :
       {"range(100000) | select('in', range(100000)) | list",
        "range(100000) | map('string') | select('in', range(100000) | map('string') | list) | list",
        "([range(100000)] * 100000) | map('sum') | sum",
        "([range(100000) | list] * 100000) | map('sort') | list | length",
        "([range(1000) | list] * 10 ** 6) | select('eq', range(1000) | list) | list",
        "([dict(range(100000) | batch(2))] * 100000) | map('dictsort') | list | length",
        "([dict(range(100000) | batch(2))] * 10 ** 5) | select('eq', dict(range(100000) | batch(2))) | list",
        "([[1] * 1000] * 100000) | sum(start=[])",
        "(['a' * 10 ** 6] * 10 ** 6) | map('replace', 'b', 'c') | map('length') | sum",
        "(['a' * 10 ** 5] * 10 ** 5) | select('eq', 'a' * 10 ** 5 ~ 'b') | list",
        "(['a' * 10 ** 5] * 10 ** 6) | select('lower') | list",
        "('a' * 10 ** 8).rfind('a' * 1000 ~ 'b') ~ ('a' * 10 ** 8).rfind('a' * 1000 ~ 'b')",
        "('a' * 10 ** 6).startswith(('a' * 999999 ~ 'b',) * 10 ** 7)",
        "('a ' * 5 * 10 ** 7).split() | length", "('a' * 10 ** 8) | upper | length",
        "('%s' * 10 ** 7) % (('a',) * 10 ** 7)",
        "(['%.10000f'] * 10 ** 6) | map('format', 1.1) | map('length') | sum",
        "([1] * 3 * 10 ** 7) | tojson | length", "([{}] * 10 ** 7) | map(attribute='a') | list | length"}) {
    const std::string message = outcome(concat("\n{{ ", expression, " }}"));
    EXPECT_TRUE(contains(message, "t.jinja:2: the chat template takes more than "))
        << expression << ": " << message.substr(0, 200);
  }
}

TEST(TemplateLimits, MacrosThatHoldLongTextsStop) {
  const std::string message = outcome(
      "{% macro m(n) %}{{ 'a' * 10 ** 8 }}{% if n %}{{ m(n - 1) }}{% endif %}{% endmacro %}\n{{ m(100) }}");
  EXPECT_TRUE(contains(message, "the chat template takes more than ")) << message.substr(0, 200);
}

TEST(TemplateLimits, HashingMakesLargeListsAndDictsCheap) {
  EXPECT_EQ(outcome("{{ range(100000) | unique | list | length }}"), "100000");
  EXPECT_EQ(outcome("{{ range(100000) | map('string') | unique | list | length }}"), "100000");
  EXPECT_EQ(outcome("{{ ([1, 1.0, true, 2 ** 60, 2.0 ** 60, 0.5, 'a', 'A', (1, 2), (1.0, 2), none] "
                    "+ range(5, 50) | list + [-0.0, 0, 7.0, (1, 2, 3)]) | unique | list | length }}"),
            "53");
  EXPECT_EQ(outcome("{% set d = dict(range(200000 // 2) | batch(2)) %}{{ d | length }} {{ d[5000] }} "
                    "{{ d[5000.0] }} {{ d[5001] is defined }} {{ d.keys() | first }} {{ d.keys() | last }}"),
            "50000 5001 5001 False 0 99998");
}

TEST(TemplateLimits, AMessageWithManyKeysKeepsTheirOrder) {
  constexpr int kKeys = 200'000;
  Json message{{"role", "user"}};
  auto& members = message.get_ref<Json::object_t&>();
  for (int i = 0; i < kKeys; i++) members.emplace_back(concat("key", i), i);
  const std::string source =
      "{% set m = messages[0] %}{{ m | length }} {{ m.key7 }} {{ m['key199999'] }} {{ (m | list)[1:3] | join "
      "}}";
  EXPECT_EQ(outcome(source, Json::array({message})), "200001 7 199999 key0key1");
}

TEST(TemplateLimits, RepeatingNothingIsNothing) {
  EXPECT_EQ(outcome("[{{ '' * 10 ** 18 }}{{ [] * 10 ** 18 }}]"), "[[]]");
}

TEST(TemplateLimits, LongConversationsStayFarBelowTheLimits) {
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

TEST(TemplateLimits, ANamespaceThatContainsItselfIsFreed) {
  EXPECT_EQ(
      outcome("{% set ns = namespace(x='a' * 1000) %}{% set ns.self = [ns] %}{{ ns.self[0].x | length }}"),
      "1000");
}

}  // namespace
}  // namespace trainer
