// A small HTTP server on this machine alone, by Debian's cpp-httplib. That library brings OpenSSL with it, so
// it is linked by libtrainer_http.so, which is opened when a page is served; the program knows only these
// types.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trainer::ui {

struct HttpRequest {
  std::string method, path;                       // "GET", "/a/b", decoded
  std::string host, origin;                       // headers; "" if they are missing
  std::multimap<std::string, std::string> query;  // ?name=value, decoded
  std::string body;
};

// Sends a piece. Returns false when nobody listens any more.
using HttpWrite = std::function<bool(std::string_view piece)>;

struct HttpResponse {
  int status = 200;
  std::string type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
  std::function<void(const HttpWrite& write)> stream;  // if set, the body is what it writes
};

struct HttpJob {
  int port = 0;  // 0: any that is free
  // Returns whether a request is refused, before anything of its body is read. Called in many threads, as
  // `answer` is.
  std::function<bool(const HttpRequest&, HttpResponse&)> refuse;
  std::function<HttpResponse(const HttpRequest&)> answer;
  // Called once, when requests are taken. `stop` ends the server from any thread.
  std::function<void(int port, std::function<void()> stop)> listening;
};

inline constexpr const char* kServeHttp = "trainer_serve_http";
inline constexpr int kMostThreads = 24;              // connections at once
inline constexpr size_t kLongestPath = 512;          // in bytes; nothing of ours is longer
inline constexpr size_t kMostBytesOfBody = 4 << 20;  // a long conversation

}  // namespace trainer::ui

// Serves on 127.0.0.1 until it is stopped. Returns 0, or the number of the error when it cannot listen on the
// port.
extern "C" int trainer_serve_http(trainer::ui::HttpJob& job);
