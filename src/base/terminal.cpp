#include "trainer/base/terminal.h"

#include <cstdlib>
#include <sys/ioctl.h>
#include <unistd.h>

namespace trainer {

std::optional<Terminal> stdout_terminal() {
  if (::isatty(STDOUT_FILENO) != 1) return std::nullopt;
  winsize size{};
  const bool has_width = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
  return Terminal{std::getenv("NO_COLOR") == nullptr, has_width ? size.ws_col : size_t{0}};
}

}  // namespace trainer
