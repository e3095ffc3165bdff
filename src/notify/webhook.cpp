#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>

#include <nlohmann/json.hpp>

#include "trainer/base/strings.h"

#include "net/http.h"
#include "notify/deliveries.h"
#include "notify/message_format.h"

namespace trainer {
namespace {

using Outcome = Delivery::Outcome;

constexpr int kConnectSeconds = 5, kRequestSeconds = 10;
constexpr double kLongestAskedWait = 600;

// What the server asks for, in seconds; 0: nothing, or a date.
double asked_wait(const net::Response& response) {
  double seconds = std::strtod(response.header("retry-after").c_str(), nullptr);
  const auto body = nlohmann::json::parse(response.body, nullptr, /*allow_exceptions=*/false);
  if (body.is_object() && body.contains("retry_after") && body["retry_after"].is_number())
    seconds = body["retry_after"].get<double>();
  return seconds > 0 ? std::min(seconds, kLongestAskedWait) : 0;
}

// The body of an answer may repeat the address, so that only the status is told.
Delivery delivery_of(const net::Response& response, const std::string& origin) {
  if (response.is_success()) return {};
  const int status = response.status;
  const std::string problem = concat(origin, " answers with HTTP ", status);
  if (status == 429 || status == 408 || status >= 500) return {Outcome::later, problem, asked_wait(response)};
  if (status >= 300 && status < 400)
    return {Outcome::never, concat(problem, ", a redirect, which is not followed: give the new address")};
  if (status == 400 || status == 413 || status == 415 || status == 422)
    return {Outcome::never, concat(problem, ": it does not take the message; is notify.format right?")};
  return {Outcome::never, concat(problem, ": is the address still right?")};
}

}  // namespace

Deliver webhook_delivery(const std::string& address, NotifyFormat format) {
  const auto client = std::make_shared<std::optional<net::Client>>();
  return [client, address, format](const Event& event, int64_t left_out,
                                   const std::atomic<bool>& abort) -> Delivery {
    try {
      net::Request request = message_request(format, address, event, left_out);
      request.connect_timeout = kConnectSeconds;
      request.timeout = kRequestSeconds;
      request.longest_body = 1'000'000;
      request.abort = &abort;
      if (!*client) client->emplace();
      return delivery_of((*client)->send(request), net::origin_of(address));
    } catch (const net::NetworkError& error) {
      return {error.is_transient() ? Outcome::later : Outcome::never, error.what()};
    }
  };
}

}  // namespace trainer
