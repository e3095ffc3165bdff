#include "net/http.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include <gtest/gtest.h>

#include "net/curl.h"
#include "support/error_message.h"
#include "support/http_server.h"

namespace trainer::net {
namespace {

using test::contains;
using test::error_message;
using test::HttpServer;
using Reason = NetworkError::Reason;

Request get(std::string url) {
  Request request;
  request.url = std::move(url);
  return request;
}

// The reason of the NetworkError that a request ends with.
Reason reason_of(const Request& request) {
  try {
    Client().send(request);
  } catch (const NetworkError& error) {
    return error.reason;
  }
  ADD_FAILURE() << "there was an answer";
  return Reason::bad_request;
}

TEST(Http, GivesStatusHeadersAndBody) {
  HttpServer server(
      [](const std::string&) { return HttpServer::text(404, "no such page", "X-Some-Name: a b \r\n"); });
  const Response response = Client().send(get(server.url("/page")));
  EXPECT_EQ(response.status, 404);
  EXPECT_FALSE(response.is_success());
  EXPECT_EQ(response.body, "no such page");
  EXPECT_EQ(response.header("x-some-name"), "a b");
  EXPECT_EQ(response.header("x-other-name"), "");
  EXPECT_TRUE(server.requests().at(0).starts_with("GET /page HTTP/1.1\r\n"));
}

TEST(Http, PostsJson) {
  HttpServer server([](const std::string&) { return HttpServer::text(200, "ok"); });
  EXPECT_TRUE(Client().send(json_post(server.url(), R"({"text": "done"})")).is_success());
  const std::string sent = server.requests().at(0);
  EXPECT_TRUE(sent.starts_with("POST / "));
  EXPECT_TRUE(contains(sent, "Content-Type: application/json\r\n"));
  EXPECT_TRUE(sent.ends_with("\r\n\r\n{\"text\": \"done\"}"));
}

TEST(Http, HandsTheBodyOnPieceByPiece) {
  const std::string body(300'000, 'x');
  HttpServer server([&](const std::string&) { return HttpServer::text(200, body, "ETag: \"7\"\r\n"); });
  Request request = get(server.url());
  std::string received;
  request.on_body = [&](const Response& head, std::string_view piece) {
    EXPECT_EQ(head.header("etag"), "\"7\"");
    received += piece;
  };
  EXPECT_EQ(Client().send(request).body, "");
  EXPECT_EQ(received, body);
}

TEST(Http, WhatTheReceiverThrowsIsThrown) {
  HttpServer server([](const std::string&) { return HttpServer::text(200, "text"); });
  Request request = get(server.url());
  request.on_body = [](const Response&, std::string_view) { throw FormatError("the disk is full"); };
  EXPECT_EQ(error_message<FormatError>([&] { Client().send(request); }), "the disk is full");
}

TEST(Http, TheTokenFollowsRedirectsOnlyOnTheSameHost) {
  HttpServer* self = nullptr;
  HttpServer server([&](const std::string& request) {
    if (request.starts_with("GET /first")) return HttpServer::text(302, "", "Location: /second\r\n");
    if (request.starts_with("GET /second"))
      return HttpServer::text(307, "", "Location: " + self->other_url("/third") + "\r\n");
    if (request.starts_with("GET /third"))
      return HttpServer::text(302, "", "Location: " + self->url("/last") + "\r\n");
    return HttpServer::text(200, "here");
  });
  self = &server;
  Request request = get(server.url("/first"));
  request.bearer_token = "hf_secret";
  request.max_redirects = 5;
  const Response response = Client().send(request);
  EXPECT_EQ(response.body, "here");
  EXPECT_EQ(response.url, server.url("/last"));
  const std::vector<std::string> requests = server.requests();
  ASSERT_EQ(requests.size(), 4);
  EXPECT_TRUE(contains(requests[0], "Authorization: Bearer hf_secret\r\n"));
  EXPECT_TRUE(contains(requests[1], "Authorization: Bearer hf_secret\r\n"));
  EXPECT_FALSE(contains(requests[2], "secret"));
  EXPECT_FALSE(contains(requests[3], "secret"));
}

TEST(Http, ARedirectIsAnAnswerUnlessItIsToBeFollowed) {
  HttpServer server([](const std::string&) { return HttpServer::text(302, "", "Location: /other\r\n"); });
  EXPECT_EQ(Client().send(get(server.url())).status, 302);
  EXPECT_EQ(server.requests().size(), 1);
}

TEST(Http, ASilentServerTimesOut) {
  HttpServer server([](const std::string&) { return ""; });
  Request request = get(server.url());
  request.stall_timeout = 1;
  EXPECT_EQ(reason_of(request), Reason::timed_out);
  request.stall_timeout = 0;
  request.timeout = 1;
  EXPECT_EQ(reason_of(request), Reason::timed_out);
}

TEST(Http, ADrippingServerTimesOut) {
  HttpServer server([](const std::string&) { return HttpServer::text(200, std::string(1000, 'x')); },
                    std::chrono::milliseconds(20));
  Request request = get(server.url());
  request.stall_timeout = 1;
  request.least_rate = 1000;
  EXPECT_EQ(reason_of(request), Reason::timed_out);
}

TEST(Http, TheTokenIsNotSentWhereOthersCouldReadIt) {
  HttpServer proxy([](const std::string&) { return HttpServer::text(200, "here"); });
  ::setenv("http_proxy", proxy.url().c_str(), 1);
  Request request = get("http://127.anything.example/");
  request.bearer_token = "hf_secret";
  Client().send(request);
  ::unsetenv("http_proxy");
  ASSERT_EQ(proxy.requests().size(), 1);
  EXPECT_FALSE(contains(proxy.requests()[0], "secret"));
}

TEST(Http, ThisMachineIsReachedWithoutAProxy) {
  HttpServer server([](const std::string&) { return HttpServer::text(200, "here"); }),
      proxy([](const std::string&) { return HttpServer::text(200, "elsewhere"); });
  ::setenv("http_proxy", proxy.url().c_str(), 1);
  Request request = get(server.url());
  request.bearer_token = "hf_secret";
  EXPECT_EQ(Client().send(request).body, "here");
  ::unsetenv("http_proxy");
  EXPECT_TRUE(proxy.requests().empty());
}

TEST(Http, APasswordIsInNoMessage) {
  for (const char* url : {"http://user:secret@127.0.0.1:1/", "http://user:sec/secret@127.0.0.1:1/",
                          "http://user:sec ret@host/secret", "user:secret@host", "https://user:secret@"})
    EXPECT_FALSE(contains(error_message<NetworkError>([&] { Client().send(get(url)); }), "ret")) << url;
  for (const char* proxy : {"http://user:secret@127.0.0.1:1", "nothing://user:secret@host:1",
                            "http://user:sec ret@host:port", "user:secret@127.0.0.1:1"}) {
    ::setenv("http_proxy", proxy, 1);
    const std::string message =
        error_message<NetworkError>([&] { Client().send(get("http://hub.invalid")); });
    EXPECT_FALSE(contains(message, "ret")) << proxy << ": " << message;
  }
  ::unsetenv("http_proxy");
}

TEST(Http, AnotherThreadEndsARequest) {
  HttpServer server([](const std::string&) { return ""; });
  std::atomic<bool> abort{false};
  Request request = get(server.url());
  request.abort = &abort;
  const auto start = std::chrono::steady_clock::now();
  const std::jthread other([&] {
    while (server.requests().empty()) std::this_thread::yield();
    abort = true;
  });
  EXPECT_EQ(reason_of(request), Reason::aborted);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(Http, AnAnswerThatEndsTooEarlyIsCut) {
  HttpServer server([](const std::string&) { return "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"; });
  EXPECT_EQ(reason_of(get(server.url())), Reason::cut);
}

TEST(Http, ATooLongAnswerEnds) {
  HttpServer server([](const std::string&) { return HttpServer::text(200, std::string(2000, 'x')); });
  Request request = get(server.url());
  request.longest_body = 1000;
  EXPECT_EQ(reason_of(request), Reason::too_large);
}

TEST(Http, WithoutAServerItIsUnreachable) {
  std::string url;
  {
    HttpServer server([](const std::string&) { return ""; });
    url = server.url("/secret?key=secret");
  }
  Request request = get(url);
  request.bearer_token = "secret";
  EXPECT_EQ(reason_of(request), Reason::unreachable);
  EXPECT_FALSE(contains(error_message<NetworkError>([&] { Client().send(request); }), "secret"));
}

TEST(Http, RefusesWhatCannotBeSent) {
  for (const std::string url :
       {"", "example.org", "file:///etc/passwd", "ftp://example.org/file", "https://"})
    EXPECT_EQ(reason_of(get(url)), Reason::bad_request) << url;
  Request request = get("http://127.0.0.1:1/");
  request.bearer_token = "secret\r\nX-Other: 1";
  EXPECT_EQ(reason_of(request), Reason::bad_request);
  EXPECT_FALSE(contains(error_message<NetworkError>([&] { Client().send(request); }), "secret"));
}

TEST(Http, AMissingLibraryIsNamedWithItsPackage) {
  const std::string message = error_message<NetworkError>([] { open_curl({"libnothing.so.4"}); });
  EXPECT_TRUE(contains(message, "apt install libcurl4")) << message;
}

}  // namespace
}  // namespace trainer::net
