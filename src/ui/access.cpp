#include "ui/access.h"

#include <array>
#include <cstdint>
#include <sys/random.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

namespace trainer::ui {
namespace {

HttpResponse sentence(int status, const std::string& text) {
  HttpResponse response;
  response.status = status;
  response.type = "text/plain; charset=utf-8";
  response.body = text + "\n";
  add_safe_headers(response);
  return response;
}

// A header Origin comes with requests of scripts and forms. That of our page has the name and port that Host
// has.
bool is_own_origin(std::string_view origin, std::string_view host) {
  return origin.empty() || (origin.starts_with("http://") && origin.substr(7) == host);
}

}  // namespace

std::string new_token() {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz234567";
  std::array<uint8_t, 32> random{};
  if (::getrandom(random.data(), random.size(), 0) != std::ssize(random))
    throw DeviceError("ui: the system gives no random numbers for the token of the address");
  std::string token;
  for (const uint8_t number : random) token += kLetters[number % kLetters.size()];
  return token;
}

bool is_equal_secret(std::string_view one, std::string_view other) {
  unsigned difference = one.size() == other.size() ? 0 : 1;
  for (size_t i = 0; i < one.size(); i++)
    difference |=
        static_cast<unsigned char>(one[i]) ^ static_cast<unsigned char>(i < other.size() ? other[i] : 0);
  return difference == 0;
}

bool is_local_host(std::string_view host) {
  for (const std::string_view name : {"127.0.0.1", "localhost", "[::1]"}) {
    if (!host.starts_with(name)) continue;
    const std::string_view rest = host.substr(name.size());
    if (rest.empty()) return true;
    const bool is_port = rest.size() > 1 && rest.size() <= 6 && rest[0] == ':' &&
                         rest.find_first_not_of("0123456789", 1) == std::string_view::npos;
    if (is_port) return true;
  }
  return false;
}

std::optional<std::string> path_behind_token(std::string_view path, std::string_view token) {
  if (!path.starts_with('/')) return std::nullopt;
  const size_t end = path.find('/', 1);
  const std::string_view given = path.substr(1, end == std::string_view::npos ? end : end - 1);
  if (!is_equal_secret(given, token)) return std::nullopt;
  return std::string(end == std::string_view::npos ? "" : path.substr(end));
}

bool is_refused(const HttpRequest& request, std::string_view token, HttpResponse& refusal) {
  const auto refuse = [&](int status, const std::string& text) {
    refusal = sentence(status, text);
    return true;
  };
  if (!is_local_host(request.host))
    return refuse(403, "This page answers only to 127.0.0.1 and localhost, and was asked by another name.");
  if (request.path.size() > kLongestPath) return refuse(414, "The address is too long.");
  if (!path_behind_token(request.path, token))
    return refuse(403,
                  "The address lacks its token, or has that of another start. Open the whole address that "
                  "`trainer ui` printed.");
  if (request.method != "GET" && request.method != "HEAD" && request.method != "POST")
    return refuse(405, "Only GET, HEAD and POST are answered.");
  if (!is_own_origin(request.origin, request.host))
    return refuse(403, "This was sent by the page of another site.");
  return false;
}

void add_safe_headers(HttpResponse& response) {
  for (const auto& [name, value] :
       {std::pair{"Content-Security-Policy",
                  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src "
                  "'self' data:; "
                  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
        std::pair{"X-Content-Type-Options", "nosniff"}, std::pair{"X-Frame-Options", "DENY"},
        std::pair{"Referrer-Policy", "no-referrer"}, std::pair{"Cross-Origin-Resource-Policy", "same-origin"},
        std::pair{"Cross-Origin-Opener-Policy", "same-origin"}, std::pair{"Cache-Control", "no-store"}})
    response.headers.emplace_back(name, value);
}

}  // namespace trainer::ui
