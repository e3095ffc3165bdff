// Requests over HTTP and HTTPS, by libcurl. It is opened when the first request is made, so that the program
// starts without it. The system's certificates and the proxy variables (https_proxy, no_proxy, ...) apply;
// SSL_CERT_FILE, CURL_CA_BUNDLE and REQUESTS_CA_BUNDLE name other certificates.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/base/error.h"

#include "net/address.h"

namespace trainer::net {

// A server's answer, of any status.
struct Response {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  std::string url;       // the URL that answered, after redirects
  std::string redirect;  // the address that it names if it is one that was not followed

  bool is_success() const { return status >= 200 && status < 300; }
  // The value of a header, by its name in lower case; "" when there is none.
  std::string header(const std::string& name) const;
};

struct Request {
  std::string url;
  std::string method = "GET";  // GET, HEAD, POST, PUT, ...
  std::vector<std::pair<std::string, std::string>>
      headers;       // nothing secret: they follow redirects to other hosts
  std::string body;  // is sent with POST and PUT
  // Sent as "Authorization: Bearer ..."; never to another host, port or scheme than that of `url`, and never
  // where others could read it (keeps_secrets()).
  std::string bearer_token;
  int max_redirects = 0;  // 0: a redirect is an answer like others
  // In seconds; 0: no limit.
  int connect_timeout = 10;
  int stall_timeout = 30;  // with fewer than `least_rate` bytes a second
  int least_rate = 1;
  int timeout = 0;  // for the whole request
  size_t longest_body = 64'000'000;
  // May be set by another thread (or a signal handler): the request ends within a second, with a
  // NetworkError.
  const std::atomic<bool>* abort = nullptr;
  // Is called with the pieces of the body if the status is 2xx; Response::body stays empty then. `head` has
  // status and headers. What it throws ends the request and is thrown by send().
  std::function<void(const Response& head, std::string_view piece)> on_body;
};

// No answer, or not all of it. The message names the host and the reason, never the rest of the URL or a
// header, which may be secret.
struct NetworkError : Error {
  enum class Reason {
    no_library,   // libcurl is not installed
    bad_request,  // an URL or a header that cannot be sent
    unreachable,  // no address, no connection
    certificate,
    timed_out,
    cut,  // the connection ended too early
    aborted,
    too_large
  };
  NetworkError(Reason reason, const std::string& message) : Error(ExitCode::files, message), reason(reason) {}
  // Returns whether the same request may succeed a little later.
  bool is_transient() const {
    return reason == Reason::unreachable || reason == Reason::timed_out || reason == Reason::cut;
  }
  Reason reason;
};

// Keeps its connections open for the next request. For one thread at a time.
class Client {
 public:
  // Throws NetworkError when libcurl is not installed.
  Client();
  ~Client();
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;

  // Returns the answer, whatever its status is. Throws NetworkError when there is none.
  Response send(const Request& request);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A POST of JSON; other fields may be set before it is sent.
Request json_post(std::string url, std::string json);

}  // namespace trainer::net
