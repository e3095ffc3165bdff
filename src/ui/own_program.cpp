#include "ui/own_program.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <sstream>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/child_process.h"

namespace trainer::ui {
namespace {

constexpr const char* kOwnProgram = "/proc/self/exe";
constexpr auto kGrace = std::chrono::milliseconds(500);

struct Pipe {
  int from = -1, to = -1;
  Pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0)
      throw DeviceError(concat("no process can be started: ", std::strerror(errno)));
    from = ends[0];
    to = ends[1];
  }
};

// The last error among lines such as "12:00:00 E TEXT" and "trainer: TEXT"; without one, all of it.
std::string message_in(const std::string& said) {
  std::istringstream lines(said);
  std::string message;
  bool is_error = false;
  for (std::string line; std::getline(lines, line);) {
    const bool is_log =
        line.size() > 11 && line[2] == ':' && line[5] == ':' && line[8] == ' ' && line[10] == ' ';
    const bool is_plain = line.starts_with("trainer: ");
    if (is_log || is_plain) {
      is_error = is_plain || line[9] == 'E';
      if (is_error) message = line.substr(is_plain ? 9 : 11);
    } else if (is_error && !line.starts_with("Error ")) {  // the last line names a page
      message += "\n" + line;
    }
  }
  return message.empty() ? said : message;
}

}  // namespace

OwnProgram::OwnProgram(std::vector<std::string> arguments) {
  const Pipe in, out;
  said_ = ::memfd_create("said", MFD_CLOEXEC);
  arguments.insert(arguments.begin(), kOwnProgram);
  const int failed =
      start_child(std::move(arguments), environment_variables(), {in.from, out.to, said_}, process_);
  ::close(in.from);
  ::close(out.to);
  input_ = in.to;
  output_ = ::fdopen(out.from, "r");
  if (failed == 0 && output_ != nullptr) return;
  ::close(input_);
  output_ != nullptr ? ::fclose(output_) : ::close(out.from);
  throw DeviceError(concat("no process can be started: ", std::strerror(failed)));
}

OwnProgram::~OwnProgram() {
  end_input();
  const auto end = std::chrono::steady_clock::now() + kGrace;
  send(SIGINT);
  while (!has_ended() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  send(SIGKILL);
  wait();
  ::fclose(output_);
  ::close(said_);
}

bool OwnProgram::write(const std::string& line) {
  const std::string text = line + "\n";
  size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t count = ::write(input_, text.data() + sent, text.size() - sent);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    sent += static_cast<size_t>(count);
  }
  return true;
}

void OwnProgram::end_input() {
  if (input_ >= 0) ::close(input_);
  input_ = -1;
}

bool OwnProgram::read(std::string& line) {
  char* text = nullptr;
  size_t room = 0;
  const ssize_t length = ::getline(&text, &room, output_);
  if (length > 0) line.assign(text, static_cast<size_t>(text[length - 1] == '\n' ? length - 1 : length));
  std::free(text);
  return length > 0;
}

std::string OwnProgram::read_all() {
  std::string all;
  std::array<char, 65536> piece{};
  while (const size_t count = std::fread(piece.data(), 1, piece.size(), output_))
    all.append(piece.data(), count);
  return all;
}

void OwnProgram::send(int signal) {
  if (!has_ended()) ::kill(process_, signal);
}

bool OwnProgram::has_ended() {
  const std::scoped_lock lock(mutex_);
  if (code_ >= 0) return true;
  int status = 0;
  if (::waitpid(process_, &status, WNOHANG) != process_) return false;
  code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return true;
}

int OwnProgram::wait() {
  while (!has_ended()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return code_;
}

std::string OwnProgram::problem() {
  constexpr off_t kMost = 65536;
  constexpr size_t kShown = 2000;
  const off_t size = ::lseek(said_, 0, SEEK_END);
  const off_t begin = size > kMost ? size - kMost : 0;
  std::string said(static_cast<size_t>(size - begin), '\0');
  const ssize_t count = ::pread(said_, said.data(), said.size(), begin);
  said.resize(static_cast<size_t>(std::max<ssize_t>(0, count)));
  const std::string message = message_in(said);
  return message.size() > kShown ? message.substr(message.size() - kShown) : message;
}

}  // namespace trainer::ui
