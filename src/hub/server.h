// Requests to the hub. https://huggingface.co/docs/hub/api
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "trainer/base/error.h"

#include "hub/cache.h"
#include "hub/name.h"
#include "hub/settings.h"
#include "net/http.h"

namespace trainer::hub {

// A name that the hub does not know, or does not give; its server is down; HF_HUB_OFFLINE.
struct HubError : Error {
  explicit HubError(const std::string& message) : Error(ExitCode::files, message) {
    set_family(ErrorCode::hub);
  }
};

// The address of a file's bytes.
struct Location {
  std::string url;
  CheckedName hash;   // of its content; empty: the server names none
  int64_t size = -1;  // -1: unknown
};

// For one thread at a time.
class Server {
 public:
  // `abort`: ends requests and waits, from another thread.
  Server(const Settings& settings, Name name, const std::atomic<bool>* abort = nullptr);

  // The repository's files at the name's revision. Throws HubError, which says what to do, or
  // net::NetworkError.
  Listing list();
  // Returns the location of a file of the commit. The token is not sent to other hosts.
  Location locate(const CheckedName& commit, const CheckedName& path);

  // Sends a request for a located file: with the token only if the address is the hub's own. Repeats nothing.
  net::Response get(const Location& location, net::Request request);

  // Waits before attempt number `failed` + 1; longer if the answer says so.
  void wait(int failed, const net::Response* response, const std::string& reason) const;
  // The error of an answer that is no success, for a file or, if `path` is empty, for the repository.
  [[noreturn]] void refuse(const net::Response& response, const CheckedName& path);
  // Returns whether a request may succeed when it is repeated.
  static bool is_worth_repeating(int status);
  static constexpr int kAttempts = 5;
  // Bytes a second. A server that sends fewer does not answer; a modem sends ten times as many.
  static constexpr int kLeastRate = 500;

 private:
  net::Response send_patiently(net::Request request);
  [[noreturn]] void refuse_repository();
  net::Request request(const std::string& url) const;
  std::string repository_url() const;  // the page for people
  std::string did_you_mean();          // "; did you mean X?", or "."

  Settings settings_;
  Name name_;
  const std::atomic<bool>* abort_;
  net::Client client_;
};

// The name among `known` that is meant; "" when none is near.
std::string nearest_id(const std::string& id, const std::vector<std::string>& known);

}  // namespace trainer::hub
