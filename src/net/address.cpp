#include "net/address.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cctype>
#include <netinet/in.h>
#include <optional>

#include "trainer/base/strings.h"

#include "base/text.h"

namespace trainer::net {
namespace {

constexpr std::string_view kAfterHost = "/?#", kHidden = "***";
constexpr std::string_view kAround = " \t\r\n\"'<>`";  // an address inside a text

bool is_digits(std::string_view text) {
  return std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c) != 0; });
}

// Where the host may begin: after "https://"; npos if there is no "://".
size_t begin_of(std::string_view url) {
  const size_t scheme = url.find("://");
  return scheme == std::string_view::npos ? scheme : scheme + 3;
}

// "user:password@host:port", in lower case.
std::string authority_of(std::string_view url) {
  const size_t begin = begin_of(url);
  if (begin == std::string_view::npos) return "";
  return lower_case(url.substr(begin, url.find_first_of(kAfterHost, begin) - begin));
}

// "host" and ":port"; nullopt for what readers of URLs might understand in different ways.
struct HostAndPort {
  std::string host, port;
};
std::optional<HostAndPort> host_of(std::string_view url) {
  std::string rest = authority_of(url);
  rest.erase(0, rest.find('@') + 1);  // 0 without one
  const size_t end = rest.starts_with('[') ? rest.find(']') + 1 : std::min(rest.find(':'), rest.size());
  HostAndPort found{rest.substr(0, end), rest.substr(end)};
  const bool is_host = std::ranges::all_of(found.host, [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view(".-_:[]").find(static_cast<char>(c)) != std::string_view::npos;
  });
  const bool is_port = found.port.empty() ||
                       (found.port.starts_with(':') && is_digits(std::string_view(found.port).substr(1)));
  return is_host && is_port && !found.host.empty() ? std::optional(found) : std::nullopt;
}

// Where "user:password" ends in an address whose host may begin at `begin`: at the @ that readers of URLs
// see. If what they take for the host is none, a password has a character that ends a host, and the last @
// counts. npos if there is none.
size_t end_of_user(std::string_view address, size_t begin) {
  const size_t end = std::min(address.find_first_of(kAfterHost, begin), address.size());
  const std::string_view host = address.substr(begin, end - begin);
  if (const size_t at = host.rfind('@'); at != std::string_view::npos) return begin + at;
  const size_t colon = host.find(':'), last = address.rfind('@');
  const bool has_port =
      colon == std::string_view::npos || host.starts_with('[') || is_digits(host.substr(colon + 1));
  return has_port || last < begin ? std::string_view::npos : last;
}

std::string hidden_in(std::string_view address) {
  const size_t begin = begin_of(address);
  if (begin != std::string_view::npos) {
    if (end_of_user(address, begin) == std::string_view::npos) return std::string(address);
    return concat(address.substr(0, begin), kHidden, address.substr(address.rfind('@')));
  }
  const size_t at = address.rfind('@');  // "user:password@proxy:3128"
  const bool has_password = at != std::string_view::npos && address.find(':') < at;
  return has_password ? concat(kHidden, address.substr(at)) : std::string(address);
}

}  // namespace

std::string origin_of(std::string_view url) {
  const size_t begin = begin_of(url);
  if (begin == std::string_view::npos) return "the address";
  const std::string bare = without_user(url);
  return lower_case(bare.substr(0, bare.find_first_of(kAfterHost, begin)));
}

std::string without_user(std::string_view url) {
  const size_t begin = begin_of(url);
  if (begin == std::string_view::npos) return std::string(url);
  const size_t end = end_of_user(url, begin);
  return concat(url.substr(0, begin),
                end == std::string_view::npos ? url.substr(begin) : url.substr(end + 1));
}

std::string without_credentials(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t begin = std::min(text.find_first_not_of(kAround), text.size());
    out += text.substr(0, begin);
    text.remove_prefix(begin);
    const std::string_view word = text.substr(0, text.find_first_of(kAround));
    out += hidden_in(word);
    text.remove_prefix(word.size());
  }
  return out;
}

bool is_address(std::string_view url) {
  const std::string scheme = lower_case(url.substr(0, url.find("://")));
  const bool is_plain = std::ranges::all_of(url, [](char c) { return static_cast<unsigned char>(c) > 32; });
  return (scheme == "http" || scheme == "https") && is_plain && host_of(url);
}

bool is_this_machine(std::string_view url) {
  const auto found = host_of(url);
  if (!found) return false;
  const std::string& host = found->host;
  if (host == "localhost") return true;
  in_addr four{};
  if (::inet_pton(AF_INET, host.c_str(), &four) == 1) return ntohl(four.s_addr) >> 24 == IN_LOOPBACKNET;
  in6_addr six{};
  const bool is_six =
      host.starts_with('[') && ::inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &six) == 1;
  return is_six && IN6_IS_ADDR_LOOPBACK(&six);
}

bool keeps_secrets(std::string_view url) {
  return lower_case(url.substr(0, 8)) == "https://" || is_this_machine(url);
}

}  // namespace trainer::net
