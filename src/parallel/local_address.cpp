#include "parallel/local_address.h"

#include <array>
#include <memory>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

namespace trainer {
namespace {

// Returns "" when there is no way to this address.
std::string address_towards(const addrinfo& goal) {
  const int socket = ::socket(goal.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return "";
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  std::array<char, NI_MAXHOST> text{};
  auto* address = reinterpret_cast<sockaddr*>(&own);
  // Connecting a datagram socket only chooses the way.
  const bool found = ::connect(socket, goal.ai_addr, goal.ai_addrlen) == 0 &&
                     ::getsockname(socket, address, &size) == 0 &&
                     ::getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0;
  ::close(socket);
  return found ? text.data() : "";
}

}  // namespace

std::string local_address_towards(const std::string& host, int port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_DGRAM;
  const int problem = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all(found, ::freeaddrinfo);
  if (problem == 0) {
    for (const addrinfo* goal = found; goal != nullptr; goal = goal->ai_next) {
      if (std::string address = address_towards(*goal); !address.empty()) return address;
    }
  }
  throw ConfigError(concat("MASTER_ADDR: the host '", host, "' has no address that this machine reaches",
                           problem == 0 ? "" : concat(" (", ::gai_strerror(problem), ")")));
}

}  // namespace trainer
