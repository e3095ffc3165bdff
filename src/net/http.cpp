#include "net/http.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <exception>

#include "trainer/base/strings.h"
#include "trainer/base/version.h"

#include "base/text.h"
#include "net/address.h"
#include "net/curl.h"

namespace trainer::net {
namespace {

using Reason = NetworkError::Reason;

std::string_view trim(std::string_view text) {
  const char* spaces = " \t\r\n";
  const size_t first = text.find_first_not_of(spaces);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(spaces) - first + 1);
}

// A connection that its peer has closed raises SIGPIPE, which would end the process. It is taken from the
// pending signals of this thread before they are unblocked again.
class NoSigpipe {
 public:
  NoSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoSigpipe() {
    const timespec at_once{0, 0};
    if (!was_pending_) ::sigtimedwait(&pipe_, nullptr, &at_once);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  sigset_t pipe_{}, before_{};
  bool was_pending_ = false;
};

// The answer that one exchange receives. The functions are called by libcurl, which no exception may pass.
struct Exchange {
  const Request& request;
  Response response;
  std::exception_ptr failure;

  void take_header(std::string_view line) {
    line = trim(line);
    if (line.starts_with("HTTP/")) {  // may come again, after "100 Continue"
      response.headers.clear();
      const size_t space = line.find(' ');
      response.status = space == std::string_view::npos ? 0 : std::atoi(line.data() + space);
      return;
    }
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return;
    response.headers[lower_case(line.substr(0, colon))] = trim(line.substr(colon + 1));
  }

  void take_body(std::string_view piece) {
    if (request.on_body && response.is_success()) {
      request.on_body(response, piece);
      return;
    }
    if (response.body.size() + piece.size() > request.longest_body)
      throw NetworkError(Reason::too_large, concat(origin_of(request.url), ": the answer is longer than ",
                                                   bytes_string(static_cast<int64_t>(request.longest_body))));
    response.body += piece;
  }

  static size_t on_header(char* data, size_t size, size_t count, void* self) {
    return static_cast<Exchange*>(self)->guarded(&Exchange::take_header, {data, size * count});
  }
  static size_t on_body(char* data, size_t size, size_t count, void* self) {
    return static_cast<Exchange*>(self)->guarded(&Exchange::take_body, {data, size * count});
  }
  // Called several times a second.
  static int on_progress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    const std::atomic<bool>* abort = static_cast<Exchange*>(self)->request.abort;
    return abort != nullptr && *abort ? 1 : 0;
  }

  size_t guarded(void (Exchange::*take)(std::string_view), std::string_view piece) {
    try {
      (this->*take)(piece);
      return piece.size();
    } catch (...) {
      failure = std::current_exception();
      return 0;  // ends the exchange
    }
  }
};

class HeaderList {
 public:
  ~HeaderList() { curl().slist_free_all(list_); }
  HeaderList() = default;
  HeaderList(const HeaderList&) = delete;
  HeaderList& operator=(const HeaderList&) = delete;

  void add(const std::string& name, const std::string& value) {
    const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127; };
    if (std::ranges::any_of(name + value, is_control))
      throw NetworkError(Reason::bad_request, concat("the header ", one_line(name, 40),
                                                     " has a line break or another control character"));
    list_ = curl().slist_append(list_, concat(name, ":", value.empty() ? "" : " ", value).c_str());
  }
  curl_slist* get() const { return list_; }

 private:
  curl_slist* list_ = nullptr;
};

Reason reason_of(CURLcode code) {
  switch (code) {
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_BAD_FUNCTION_ARGUMENT:
      return Reason::bad_request;
    case CURLE_OPERATION_TIMEDOUT:
      return Reason::timed_out;
    case CURLE_ABORTED_BY_CALLBACK:
      return Reason::aborted;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
      return Reason::certificate;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    case CURLE_SSL_CONNECT_ERROR:
      return Reason::unreachable;
    default:
      return Reason::cut;
  }
}

const char* advice_for(Reason reason) {
  switch (reason) {
    case Reason::unreachable:
      return "; is there a network, and is a proxy needed (https_proxy)?";
    case Reason::certificate:
      return "; is the package ca-certificates installed? SSL_CERT_FILE names a file of other certificates";
    default:
      return "";
  }
}

const char* other_certificates() {
  for (const char* name : {"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"}) {
    const char* file = std::getenv(name);
    if (file != nullptr && *file != '\0') return file;
  }
  return nullptr;
}

}  // namespace

std::string Response::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

namespace {

// What libcurl says, without the credentials that it may repeat from an address or from a proxy's variable.
std::string said_by_curl(std::string text) {
  for (const char* name :
       {"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"}) {
    const char* value = std::getenv(name);
    const std::string_view proxy = value == nullptr ? "" : value;
    const size_t at = proxy.find('@') == std::string_view::npos ? std::string::npos : text.find(proxy);
    if (at != std::string::npos) text.replace(at, proxy.size(), name);
  }
  return one_line(without_credentials(text), 300);
}

}  // namespace

struct Client::State {
  CURL* handle = curl().easy_init();
  std::array<char, CURL_ERROR_SIZE> message{};

  State() {
    if (handle == nullptr)
      throw NetworkError(Reason::no_library, "libcurl cannot be started; is memory left?");
  }
  ~State() { curl().easy_cleanup(handle); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  template <class Value>
  void set(CURLoption option, Value value) {
    curl().easy_setopt(handle, option, value);
  }

  void set_limits(const Request& request) {
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_CONNECTTIMEOUT, static_cast<long>(request.connect_timeout));
    set(CURLOPT_TIMEOUT, static_cast<long>(request.timeout));
    set(CURLOPT_LOW_SPEED_LIMIT, request.stall_timeout > 0 ? static_cast<long>(request.least_rate) : 0L);
    set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(request.stall_timeout));
    set(CURLOPT_PROTOCOLS, static_cast<long>(CURLPROTO_HTTP | CURLPROTO_HTTPS));
    set(CURLOPT_USERAGENT, concat("trainer/", kVersion).c_str());
    set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    if (const char* file = other_certificates()) set(CURLOPT_CAINFO, file);
  }

  void set_method(const Request& request) {
    if (request.method == "HEAD") {
      set(CURLOPT_NOBODY, 1L);
    } else if (request.method == "POST" || request.method == "PUT") {
      set(CURLOPT_POST, 1L);
      set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
      set(CURLOPT_POSTFIELDS, request.body.data());
      if (request.method == "PUT") set(CURLOPT_CUSTOMREQUEST, "PUT");
    } else if (request.method != "GET") {
      set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
    }
  }

  void set_receivers(Exchange& exchange) {
    set(CURLOPT_HEADERFUNCTION, &Exchange::on_header);
    set(CURLOPT_HEADERDATA, &exchange);
    set(CURLOPT_WRITEFUNCTION, &Exchange::on_body);
    set(CURLOPT_WRITEDATA, &exchange);
    set(CURLOPT_NOPROGRESS, 0L);
    set(CURLOPT_XFERINFOFUNCTION, &Exchange::on_progress);
    set(CURLOPT_XFERINFODATA, &exchange);
    message[0] = '\0';
    set(CURLOPT_ERRORBUFFER, message.data());
  }

  [[noreturn]] void fail(CURLcode code, const Request& request) const {
    const Reason reason = reason_of(code);
    std::string why = message[0] != '\0' ? message.data() : curl().easy_strerror(code);
    if (reason == Reason::aborted) why = "the request was aborted";
    throw NetworkError(reason, concat(origin_of(request.url), ": ", said_by_curl(why), advice_for(reason)));
  }

  // One request and its answer; `next` becomes the address of a redirect.
  Response exchange(const Request& request, std::string& next) {
    const std::string origin = origin_of(request.url);
    if (!origin.starts_with("http://") && !origin.starts_with("https://"))
      throw NetworkError(Reason::bad_request, "an address must begin with https:// or http://");
    if (!is_address(request.url))
      throw NetworkError(
          Reason::bad_request,
          "an address has no host, or a character that cannot be in one; it is not shown, as it "
          "may hold a password (write such characters as %40 for @, %2F for /)");
    curl().easy_reset(handle);
    HeaderList headers;
    for (const auto& [name, value] : request.headers) headers.add(name, value);
    headers.add("Expect", "");  // would wait a second for servers that do not know it
    if (!request.bearer_token.empty() && keeps_secrets(request.url))
      headers.add("Authorization", "Bearer " + request.bearer_token);
    set_limits(request);
    set_method(request);
    set(CURLOPT_URL, request.url.c_str());
    if (is_this_machine(request.url)) set(CURLOPT_NOPROXY, "*");  // a proxy would be another machine
    set(CURLOPT_HTTPHEADER, headers.get());
    Exchange exchange{request, {}, nullptr};
    set_receivers(exchange);
    const NoSigpipe no_sigpipe;
    const CURLcode code = curl().easy_perform(handle);
    if (exchange.failure) std::rethrow_exception(exchange.failure);
    if (code != CURLE_OK) fail(code, request);
    const char* redirect = nullptr;
    curl().easy_getinfo(handle, CURLINFO_REDIRECT_URL, &redirect);
    next = redirect == nullptr ? "" : redirect;
    exchange.response.url = request.url;
    return std::move(exchange.response);
  }
};

Client::Client() : state_(std::make_unique<State>()) {}
Client::~Client() = default;
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;

Response Client::send(const Request& request) {
  Request current = request;
  std::string next;
  Response response = state_->exchange(current, next);
  for (int redirects = 0; redirects < request.max_redirects && is_address(next); redirects++) {
    // Whole authorities are compared, with all that libcurl might read in another way.
    const auto authority = [](const std::string& url) {
      return lower_case(url.substr(0, url.find_first_of("/?#", url.find("://") + 3)));
    };
    if (authority(next) != authority(current.url)) current.bearer_token.clear();
    if (response.status == 303 || (current.method == "POST" && response.status < 303)) {
      current.method = "GET";
      current.body.clear();
    }
    current.url = next;
    response = state_->exchange(current, next);
  }
  response.redirect = next;
  return response;
}

Request json_post(std::string url, std::string json) {
  Request request;
  request.url = std::move(url);
  request.method = "POST";
  request.headers = {{"Content-Type", "application/json"}};
  request.body = std::move(json);
  return request;
}

}  // namespace trainer::net
