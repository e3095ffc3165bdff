// Which address of this machine others reach.
#pragma once

#include <string>

namespace trainer {

// Returns the address from which this machine would reach host:port; nothing is sent. Throws ConfigError when
// the host has no address.
std::string local_address_towards(const std::string& host, int port);

}  // namespace trainer
