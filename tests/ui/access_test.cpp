// Who may see the page of `trainer ui`.
#include "ui/access.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

namespace trainer::ui {
namespace {

const std::string kToken = "abcdefghijklmnopqrstuvwxyz234567";

HttpRequest asked(const std::string& path, const std::string& host = "127.0.0.1:8620",
                  const std::string& method = "GET", const std::string& origin = "") {
  HttpRequest request;
  request.method = method;
  request.path = path;
  request.host = host;
  request.origin = origin;
  return request;
}

// The status of the refusal; 0 if it is not refused.
int refused(const HttpRequest& request) {
  HttpResponse refusal;
  if (!is_refused(request, kToken, refusal)) return 0;
  EXPECT_TRUE(refusal.type.starts_with("text/plain")) << refusal.type;
  EXPECT_EQ(refusal.body.find(kToken), std::string::npos);
  EXPECT_TRUE(refusal.body.ends_with(".\n")) << refusal.body;
  return refusal.status;
}

TEST(UiAccess, TokensAreLongAndDiffer) {
  std::set<std::string> tokens;
  for (int i = 0; i < 100; i++) tokens.insert(new_token());
  EXPECT_EQ(tokens.size(), 100u);
  for (const std::string& token : tokens) {
    EXPECT_EQ(token.size(), 32u);
    EXPECT_EQ(token.find_first_not_of("abcdefghijklmnopqrstuvwxyz234567"), std::string::npos) << token;
  }
}

TEST(UiAccess, SecretsAreEqualOnlyAsAWhole) {
  EXPECT_TRUE(is_equal_secret(kToken, kToken));
  for (const std::string& other : {std::string(), kToken.substr(1), kToken + "a", kToken.substr(0, 31) + "8",
                                   "b" + kToken.substr(1), std::string(32, '\0')})
    EXPECT_FALSE(is_equal_secret(other, kToken)) << other;
  EXPECT_FALSE(is_equal_secret(kToken, ""));
}

TEST(UiAccess, OnlyNamesOfThisMachineAreAnswered) {
  for (const char* host : {"127.0.0.1", "127.0.0.1:8620", "localhost:9000", "localhost", "[::1]:8620"})
    EXPECT_TRUE(is_local_host(host)) << host;
  for (const char* host :
       {"", "evil.example", "evil.example:8620", "127.0.0.1.evil.example", "localhost.evil.example",
        "127.0.0.1:", "127.0.0.1:80x", "127.0.0.1:1234567", "localhost@evil.example", "127.0.0.2",
        "0.0.0.0:8620", "xlocalhost", "LOCALHOST.evil"})
    EXPECT_FALSE(is_local_host(host)) << host;
}

TEST(UiAccess, EveryPathBeginsWithTheToken) {
  EXPECT_EQ(path_behind_token("/" + kToken, kToken), "");
  EXPECT_EQ(path_behind_token("/" + kToken + "/", kToken), "/");
  EXPECT_EQ(path_behind_token("/" + kToken + "/api/runs", kToken), "/api/runs");
  for (const std::string& path :
       {std::string("/"), std::string("/api/runs"), "/" + kToken + "x/", "//" + kToken + "/", kToken + "/",
        "/api/" + kToken, "/" + kToken.substr(0, 31) + "/", std::string()})
    EXPECT_EQ(path_behind_token(path, kToken), std::nullopt) << path;
}

TEST(UiAccess, RequestsAreRefusedInPlainWords) {
  const std::string home = "/" + kToken + "/";
  EXPECT_EQ(refused(asked(home)), 0);
  EXPECT_EQ(refused(asked(home + "api/runs", "localhost:4711")), 0);
  EXPECT_EQ(refused(asked(home + "api/stop", "127.0.0.1:8620", "POST", "http://127.0.0.1:8620")), 0);
  EXPECT_EQ(refused(asked("/")), 403);
  EXPECT_EQ(refused(asked("/api/runs")), 403);
  EXPECT_EQ(refused(asked(home, "evil.example:8620")), 403);
  EXPECT_EQ(refused(asked(home + "api/stop", "127.0.0.1:8620", "POST", "https://evil.example")), 403);
  EXPECT_EQ(refused(asked(home + "api/stop", "127.0.0.1:8620", "POST", "http://127.0.0.1:3000")), 403);
  EXPECT_EQ(refused(asked(home, "127.0.0.1:8620", "GET", "null")), 403);
  for (const char* method : {"PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"})
    EXPECT_EQ(refused(asked(home, "127.0.0.1:8620", method)), 405) << method;
  EXPECT_EQ(refused(asked(home + std::string(2000, 'a'))), 414);
}

}  // namespace
}  // namespace trainer::ui
