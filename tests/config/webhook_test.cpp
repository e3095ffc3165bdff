// The address of notify.webhook is a secret: no message, file or dump shows it.
#include "config/webhook.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "trainer/base/error.h"
#include "trainer/config/load.h"

#include "support/error_message.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

using test::contains;
using test::error_message;

constexpr const char* kAddress = "https://discord.com/api/webhooks/17/verysecret";

NotifyConfig with_webhook(const std::string& webhook) {
  NotifyConfig config;
  config.webhook = webhook;
  return config;
}

std::string refusal(const std::string& webhook) {
  return error_message<ConfigError>([&] { webhook_address(with_webhook(webhook)); });
}

TEST(Webhook, IsAnAddressOrTheNameOfAVariable) {
  EXPECT_EQ(webhook_address(NotifyConfig{}), "");
  EXPECT_EQ(webhook_address(with_webhook(kAddress)), kAddress);
  ::setenv("TRAINER_TEST_HOOK", kAddress, 1);
  EXPECT_EQ(webhook_address(with_webhook("TRAINER_TEST_HOOK")), kAddress);
  ::setenv("TRAINER_TEST_HOOK", "discord.com/verysecret", 1);
  EXPECT_EQ(
      refusal("TRAINER_TEST_HOOK"),
      "notify.webhook: the environment variable TRAINER_TEST_HOOK holds no address; expected https://...");
  ::unsetenv("TRAINER_TEST_HOOK");
  EXPECT_TRUE(contains(refusal("TRAINER_TEST_HOOK"), "TRAINER_TEST_HOOK is not set"));
}

TEST(Webhook, WhatIsNoAddressIsRefusedAndNotShown) {
  for (const char* wrong : {"discord.com/api/verysecret", "ftp://host/verysecret", "https:///verysecret",
                            "https://host/very secret", "https://?verysecret", "verysecret!"}) {
    const std::string message = refusal(wrong);
    EXPECT_TRUE(contains(message, "notify.webhook: ")) << message;
    EXPECT_FALSE(contains(message, "secret") && !contains(message, "may be a secret")) << message;
    EXPECT_FALSE(contains(message, "verysecret")) << message;
  }
}

TEST(Webhook, OnlyTheHostIsShown) {
  EXPECT_EQ(shown_webhook(kAddress), "https://discord.com/***");
  EXPECT_EQ(shown_webhook("https://user:password@host:80/x?y"), "https://host:80/***");
  EXPECT_EQ(shown_webhook("MY_HOOK"), "MY_HOOK");
  EXPECT_EQ(shown_webhook("discord.com/verysecret"), "***");
  EXPECT_EQ(shown_webhook(""), "");
  EXPECT_EQ(without_secrets("see 'https://a.org/x' and http://b.org/y?z, or http://c.org"),
            "see 'https://a.org/***' and http://b.org/*** or http://c.org");
  EXPECT_EQ(without_secrets("no address"), "no address");
  EXPECT_EQ(shown_override("notify.webhook=verysecret/1"), "notify.webhook=***");
  EXPECT_EQ(shown_override("notify={webhook: https://a.org/x}"), "notify={webhook: https://a.org/***");
  EXPECT_EQ(shown_override("batch_size=4"), "batch_size=4");
}

// A file of the run is no place for it; what is kept cannot be taken for an address.
TEST(Webhook, TheConfigurationIsWrittenWithoutIt) {
  Config config;
  config.notify.webhook = kAddress;
  std::ostringstream out;
  write_yaml(config, out);
  EXPECT_FALSE(contains(out.str(), "verysecret"));
  EXPECT_TRUE(contains(out.str(), "webhook: \"https://discord.com/***\"")) << out.str();
  EXPECT_FALSE(contains(value_text(config, "notify.webhook"), "verysecret"));
  test::TemporaryDirectory directory;
  std::ofstream(directory / "config.yaml") << out.str();
  const Config again = load_config(directory / "config.yaml", {});
  EXPECT_TRUE(contains(refusal(again.notify.webhook), "without the secret part"));
}

// Misspelled and misplaced, in a file and on the command line.
TEST(Webhook, NoProblemOfTheConfigurationShowsIt) {
  test::TemporaryDirectory directory;
  const auto expect_hidden = [&](const std::string& yaml, const std::vector<std::string>& overrides) {
    std::ofstream(directory / "my.yaml") << yaml;
    const std::string message =
        error_message<ConfigError>([&] { load_training_config(directory / "my.yaml", overrides); });
    EXPECT_FALSE(contains(message, "verysecret")) << message;
  };
  const std::string address = kAddress;
  expect_hidden("notify: " + address + "\n", {});
  expect_hidden("notify:\n  webhok: " + address + "\n", {});
  expect_hidden("notify:\n  webhook: [" + address + "]\n", {});
  expect_hidden("notify:\n  every_minutes: " + address + "\n", {});
  expect_hidden("notify:\n  events: " + address + "\n", {});
  expect_hidden("notify:\n  webhook: discord.com/verysecret\n", {});
  for (const std::string key :
       {"notify.webhook", "notify.webhok", "webhook", "notify", "url", "notify.format", "notify.events"}) {
    expect_hidden("{}\n", {key + "=" + address, "no_such_key=1"});
    EXPECT_FALSE(contains(advice_for_flag(key, address), "verysecret")) << key;
  }
  expect_hidden("{}\n", {"notify.webhook=discord.com/verysecret"});
  expect_hidden("{}\n", {"notify={webhook: " + address + ", no_such_key: 1}"});
}

}  // namespace
}  // namespace trainer
