// The webhook against a server on this machine.
#include <chrono>

#include <gtest/gtest.h>

#include "base/progress.h"
#include "notify/deliveries.h"
#include "support/error_message.h"
#include "support/http_server.h"

namespace trainer {
namespace {

using test::contains;
using test::HttpServer;
using Outcome = Delivery::Outcome;

const Event kEvent{"best", "text", {}, nlohmann::ordered_json{{"event", "best"}}};

Delivery post_to(const std::string& address) {
  const std::atomic<bool> abort = false;
  return webhook_delivery(address, NotifyFormat::json)(kEvent, 0, abort);
}

Delivery answer(const std::string& bytes) {
  HttpServer server([bytes](const std::string&) { return bytes; });
  const Delivery delivery = post_to(server.url("/hooks/verysecret"));
  EXPECT_FALSE(contains(delivery.problem, "verysecret")) << delivery.problem;
  return delivery;
}

TEST(Webhook, PostsTheEvent) {
  HttpServer server([](const std::string&) { return HttpServer::text(204, ""); });
  EXPECT_EQ(post_to(server.url("/hooks/verysecret")).outcome, Outcome::sent);
  const std::string request = server.requests().at(0);
  EXPECT_TRUE(request.starts_with("POST /hooks/verysecret HTTP/1.1\r\n")) << request;
  EXPECT_TRUE(request.ends_with(R"({"event":"best","text":"text"})")) << request;
}

TEST(Webhook, ABusyServerSaysWhenToComeBack) {
  const Delivery header = answer(HttpServer::text(429, "", "Retry-After: 7\r\n"));
  EXPECT_EQ(header.outcome, Outcome::later);
  EXPECT_EQ(header.wait_seconds, 7);
  EXPECT_EQ(answer(HttpServer::text(429, R"({"retry_after": 0.64})")).wait_seconds, 0.64);
  EXPECT_EQ(answer(HttpServer::text(429, "", "Retry-After: 1e300\r\n")).wait_seconds, 600);
  EXPECT_EQ(answer(HttpServer::text(429, "", "Retry-After: Fri, 31 Dec 1999 23:59:59 GMT\r\n")).wait_seconds,
            0);
  EXPECT_EQ(answer(HttpServer::text(429, "", "Retry-After: -5\r\n")).wait_seconds, 0);
}

TEST(Webhook, AServerInTroubleIsTriedAgain) {
  for (const int status : {408, 500, 502, 503, 504}) {
    const Delivery delivery = answer(HttpServer::text(status, "verysecret"));
    EXPECT_EQ(delivery.outcome, Outcome::later) << status;
    EXPECT_TRUE(contains(delivery.problem, std::to_string(status))) << delivery.problem;
  }
  EXPECT_EQ(answer("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf").outcome, Outcome::later);
}

TEST(Webhook, ARefusalIsNotTriedAgain) {
  for (const int status : {400, 401, 403, 404, 410}) {
    EXPECT_EQ(answer(HttpServer::text(status, "no")).outcome, Outcome::never) << status;
  }
  EXPECT_TRUE(contains(answer(HttpServer::text(400, "")).problem, "notify.format"));
  const Delivery moved = answer(HttpServer::text(301, "", "Location: http://other/verysecret\r\n"));
  EXPECT_EQ(moved.outcome, Outcome::never);
  EXPECT_TRUE(contains(moved.problem, "redirect")) << moved.problem;
}

TEST(Webhook, ADeadServerIsTriedAgainAndNamedByItsHost) {
  std::string address;
  {
    HttpServer server([](const std::string&) { return HttpServer::text(200, ""); });
    address = server.url("/hooks/verysecret");
  }
  const Delivery delivery = post_to(address);
  EXPECT_EQ(delivery.outcome, Outcome::later);
  EXPECT_TRUE(contains(delivery.problem, "http://127.0.0.1:")) << delivery.problem;
  EXPECT_FALSE(contains(delivery.problem, "verysecret")) << delivery.problem;
}

TEST(Webhook, AServerThatIsSilentIsLeftWhenTheRunEnds) {
  HttpServer server([](const std::string&) { return ""; });
  const auto begin = std::chrono::steady_clock::now();
  Outbox outbox("notify.webhook", webhook_delivery(server.url("/hooks/verysecret"), NotifyFormat::json));
  outbox.put(kEvent);
  outbox.finish(1);
  EXPECT_LT(seconds_since(begin), 4);
}

}  // namespace
}  // namespace trainer
