#include "net/address.h"

#include <gtest/gtest.h>

namespace trainer::net {
namespace {

TEST(Address, TheOriginShowsNothingSecret) {
  EXPECT_EQ(origin_of("https://User:secret@Example.org:8000/path?key=secret"), "https://example.org:8000");
  EXPECT_EQ(origin_of("https://example.org?key=secret"), "https://example.org");
  EXPECT_EQ(origin_of("https://user:s/cret@example.org/path"), "https://example.org");
  EXPECT_EQ(origin_of("https://user:s@cret@example.org/a/b@v1"), "https://example.org");
  EXPECT_EQ(origin_of("https://example.org/a/b@v1"), "https://example.org");
  EXPECT_EQ(origin_of("not an URL"), "the address");
}

TEST(Address, LoopbackIsAnAddressAndNoPrefix) {
  for (const char* url :
       {"http://127.0.0.1", "http://127.0.0.1:8080/a", "http://127.255.3.4?a", "http://[::1]:80/",
        "http://[0:0:0:0:0:0:0:1]", "http://localhost", "HTTP://LocalHost:1", "http://u:p@localhost/"})
    EXPECT_TRUE(is_this_machine(url)) << url;
  for (const char* url : {"http://127.anything.example",
                          "http://127.0.0.1.example.org",
                          "http://127.0.0.1.",
                          "http://127.0.0",
                          "http://127.1",
                          "http://0127.0.0.1",
                          "http://2130706433",
                          "http://localhost.example.org",
                          "http://localhost.",
                          "http://127.0.0.1@example.org",
                          "http://127.0.0.1:80@example.org",
                          "http://127.0.0.1\\@example.org/",
                          "http://a@127.0.0.1@example.org",
                          "http://example.org/@127.0.0.1",
                          "http://[::1].example.org",
                          "http://[::1",
                          "http://[::1%25lo]",
                          "http://[::2]",
                          "http://1.127.0.0",
                          "http://128.0.0.1",
                          "http://",
                          "127.0.0.1",
                          "http://127.0.0.1%2eexample.org",
                          ""})
    EXPECT_FALSE(is_this_machine(url)) << url;
}

TEST(Address, SecretsGoOnlyWhereNobodyReadsThem) {
  EXPECT_TRUE(keeps_secrets("https://example.org"));
  EXPECT_TRUE(keeps_secrets("HTTPS://example.org"));
  EXPECT_TRUE(keeps_secrets("http://127.0.0.1:8080"));
  for (const char* url :
       {"http://example.org", "http://127.x.example", "ftp://example.org", "https:/example.org"})
    EXPECT_FALSE(keeps_secrets(url)) << url;
}

TEST(Address, PasswordsAreHiddenInAnyText) {
  EXPECT_EQ(without_user("http://user:secret@mirror.example/hf"), "http://mirror.example/hf");
  EXPECT_EQ(without_user("https://mirror.example/a/b@v1"), "https://mirror.example/a/b@v1");
  EXPECT_EQ(without_credentials("proxy 'http://user:secret@proxy:3128' and socks5h://secret@x/ fail"),
            "proxy 'http://***@proxy:3128' and socks5h://***@x/ fail");
  EXPECT_EQ(without_credentials("user:secret@proxy:3128"), "***@proxy:3128");
  for (const char* hidden : {"http://u:sec@ret@host/", "http://u:sec/ret@host", "http://u:sec#ret@host:1/a"})
    EXPECT_EQ(without_credentials(hidden).find("ret"), std::string::npos) << hidden;
  for (const char* plain : {"https://example.org:80/a@b", "someone@example.org", "a/b@v1", "", " "})
    EXPECT_EQ(without_credentials(plain), plain);
}

TEST(Address, OtherTextsAreNone) {
  for (const char* url : {"http://example.org", "https://u:p@example.org:8000/a?b#c", "http://[::1]:80"})
    EXPECT_TRUE(is_address(url)) << url;
  for (const char* url : {"", "example.org", "https://", "http:///a", "ftp://a", "http://a b", "http://a:x/",
                          "http://a@b@c", "http://a\\b", "http://[::1"})
    EXPECT_FALSE(is_address(url)) << url;
}

}  // namespace
}  // namespace trainer::net
