#include "notify/message_format.h"

#include <gtest/gtest.h>

#include "support/error_message.h"

namespace trainer {
namespace {

using test::contains;
using Json = nlohmann::ordered_json;

constexpr const char* kDiscord = "https://discord.com/api/webhooks/1/secret";
constexpr const char* kSlack = "https://hooks.slack.com/services/T0/B0/secret";

Event failure() {
  return {"failed",
          "my_run has failed: <out of memory> & more @everyone",
          {"line `1`", "line 2"},
          Json{{"event", "failed"}, {"run", "my_run"}, {"step", 3}}};
}

Json body(const net::Request& request) { return Json::parse(request.body); }

TEST(MessageFormat, TheHostTellsTheForm) {
  const auto found = [](const std::string& address) {
    return message_format(NotifyFormat::automatic, address);
  };
  EXPECT_EQ(found(kDiscord), NotifyFormat::discord);
  EXPECT_EQ(found("https://ptb.discord.com/api/webhooks/1/x"), NotifyFormat::discord);
  EXPECT_EQ(found(kSlack), NotifyFormat::slack);
  EXPECT_EQ(found("https://ntfy.sh/topic"), NotifyFormat::text);
  EXPECT_EQ(found("https://notdiscord.com/api"), NotifyFormat::json);
  EXPECT_EQ(found("http://127.0.0.1:8000/discord.com"), NotifyFormat::json);
  EXPECT_EQ(message_format(NotifyFormat::slack, kDiscord), NotifyFormat::slack);
}

TEST(MessageFormat, DiscordShowsTheTextAsItIsAndNotifiesNobody) {
  const net::Request request = message_request(NotifyFormat::automatic, kDiscord, failure(), 0);
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.url, kDiscord);
  EXPECT_EQ(body(request)["content"],
            "my\\_run has failed: \\<out of memory\\> & more @everyone\n```\nline ´1´\nline 2\n```");
  EXPECT_EQ(body(request)["allowed_mentions"], (Json{{"parse", Json::array()}}));
}

TEST(MessageFormat, SlackGetsItsEscapes) {
  const Json sent = body(message_request(NotifyFormat::automatic, kSlack, failure(), 0));
  EXPECT_EQ(sent["text"],
            "my_run has failed: &lt;out of memory&gt; &amp; more @everyone\n\nline `1`\nline 2");
  EXPECT_EQ(sent["mrkdwn"], false);
}

TEST(MessageFormat, JsonHasTheNumbersAndTheText) {
  const Json sent = body(message_request(NotifyFormat::json, "https://example.org/x", failure(), 2));
  EXPECT_EQ(sent["event"], "failed");
  EXPECT_EQ(sent["step"], 3);
  EXPECT_EQ(sent["text"], failure().text);
  EXPECT_EQ(sent["lines"], (Json{"line `1`", "line 2"}));
  EXPECT_EQ(sent["left_out"], 2);
}

TEST(MessageFormat, TextIsTheTextAlone) {
  const net::Request request = message_request(NotifyFormat::text, "https://ntfy.sh/topic", failure(), 0);
  EXPECT_EQ(request.body, failure().text + "\n\nline `1`\nline 2");
  EXPECT_EQ(request.headers[0].second, "text/plain; charset=utf-8");
}

TEST(MessageFormat, SaysHowManyMessagesWereLeftOut) {
  const auto text = [](int64_t left_out) {
    return message_request(NotifyFormat::text, "https://ntfy.sh/topic", {"best", "text", {}, {}}, left_out)
        .body;
  };
  EXPECT_EQ(text(0), "text");
  EXPECT_EQ(text(1), "text\n(1 earlier message was left out)");
  EXPECT_EQ(text(7), "text\n(7 earlier messages were left out)");
}

// Discord refuses more than 2,000 characters; escapes double what they are put before.
TEST(MessageFormat, LongTextsAreCutBetweenCharacters) {
  std::string umlauts;
  for (int i = 0; i < 5000; i++) umlauts += "_ä";
  const Event event{"failed", umlauts, {umlauts, umlauts}, {}};
  for (const char* address : {kDiscord, kSlack, "https://ntfy.sh/topic"}) {
    const std::string sent = message_request(NotifyFormat::automatic, address, event, 3).body;
    EXPECT_LT(sent.size(), 2000u) << address;
    EXPECT_FALSE(contains(sent, "\xef\xbf\xbd")) << "half a character, in " << address;
    EXPECT_TRUE(contains(sent, "3 earlier messages")) << address;
  }
}

TEST(MessageFormat, TextThatIsNotUtf8IsSent) {
  const Event event{"warning", "caf\xe9", {}, Json{{"event", "warning"}}};
  EXPECT_TRUE(body(message_request(NotifyFormat::json, "https://example.org", event, 0)).is_object());
}

}  // namespace
}  // namespace trainer
