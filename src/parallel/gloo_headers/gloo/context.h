// Stand-in: see README.md.
#pragma once

#include <chrono>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

namespace transport {
class UnboundBuffer;
class Device;
}  // namespace transport

}  // namespace gloo
