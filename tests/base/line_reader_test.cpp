#include "base/line_reader.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <poll.h>
#include <pty.h>
#include <string_view>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include <utility>
#include <utmp.h>

#include <gtest/gtest.h>

namespace trainer {
namespace {

using namespace std::string_literals;

constexpr const char* kUp = "\x1b[A";
constexpr const char* kLeft = "\x1b[D";
constexpr const char* kHome = "\x1b[H";
constexpr const char* kErase = "\x1b[3~";
constexpr const char* kWordLeft = "\x1b[1;5D";
constexpr const char* kPrompt = "\x1b[?2004h> ";

// Reads lines until the end; says of each how it ended, with its line breaks as "|".
[[noreturn]] void read_lines(const char* libedit) {
  ::setenv("TERM", "xterm", 1);
  LineReader reader(libedit);
  std::string line;
  for (auto ending = LineReader::Ending::line; ending != LineReader::Ending::ended;) {
    ending = reader.read("> ", line);
    std::replace(line.begin(), line.end(), '\n', '|');
    constexpr const char* kEndings[] = {"line", "interrupted", "ended"};
    std::cout << kEndings[static_cast<int>(ending)] << " [" << line << "]" << std::endl;
  }
  ::_exit(0);
}

// A shell: has read_lines() in the foreground; when that is suspended, says so and resumes it at Enter.
[[noreturn]] void read_lines_as_a_job(const char* libedit) {
  std::signal(SIGTTOU, SIG_IGN);  // tcsetpgrp() in the background sends it
  const pid_t job = ::fork();
  if (job == 0) {
    ::setpgid(0, 0);
    ::tcsetpgrp(STDIN_FILENO, ::getpid());
    std::signal(SIGTTOU, SIG_DFL);
    read_lines(libedit);
  }
  for (int status = 0; ::waitpid(job, &status, WUNTRACED) == job && WIFSTOPPED(status);) {
    ::tcsetpgrp(STDIN_FILENO, ::getpid());
    std::cout << "suspended" << std::endl;
    std::string line;
    std::getline(std::cin, line);
    ::tcsetpgrp(STDIN_FILENO, job);
    ::kill(job, SIGCONT);
  }
  ::_exit(0);
}

// A person at a terminal, with a process that reads lines there.
class Typist {
 public:
  explicit Typist(const char* libedit = "libedit.so.2", void (*process)(const char*) = read_lines) {
    const winsize size{24, 40, 0, 0};
    int end = -1;
    ::openpty(&terminal_, &end, nullptr, nullptr, &size);
    ::tcgetattr(end, &settings_);  // before the process can change them
    child_ = ::fork();
    if (child_ == 0) {
      ::close(terminal_);
      ::login_tty(end);
      process(libedit);
    }
    ::close(end);
  }
  ~Typist() {
    if (child_ > 0) end_by(SIGKILL);
    ::close(terminal_);
  }
  Typist(const Typist&) = delete;
  Typist& operator=(const Typist&) = delete;

  void type(const std::string& keys) {
    ASSERT_EQ(::write(terminal_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }

  // Returns what is shown up to `words`, and forgets it. "" at the end or after a minute.
  std::string wait_for(std::string_view words) {
    while (shown_.find(words) == std::string::npos) {
      pollfd ready{terminal_, POLLIN, 0};
      char bytes[4096];
      const ssize_t got = ::poll(&ready, 1, 60'000) == 1 ? ::read(terminal_, bytes, sizeof bytes) : -1;
      if (got <= 0) {
        ADD_FAILURE() << words << " was not shown, only: " << shown_;
        return "";
      }
      shown_.append(bytes, static_cast<size_t>(got));
    }
    const size_t end = shown_.find(words) + words.size();
    std::string before = shown_.substr(0, end);
    shown_.erase(0, end);
    return before;
  }

  // Types into a new line; returns how it ended, as read_lines() says it.
  std::string after(const std::string& keys) {
    wait_for(kPrompt);
    type(keys);
    wait_for("\x1b[?2004l");
    const std::string said = wait_for("]");
    return said.substr(std::min(said.find_first_not_of("\r\n"), said.size()));
  }

  bool terminal_is_as_before() const {
    termios now{};
    ::tcgetattr(terminal_, &now);
    return now.c_lflag == settings_.c_lflag && now.c_iflag == settings_.c_iflag &&
           now.c_oflag == settings_.c_oflag && std::equal(now.c_cc, now.c_cc + NCCS, settings_.c_cc);
  }
  void resize(unsigned short width) const {
    const winsize size{24, width, 0, 0};
    ::ioctl(terminal_, TIOCSWINSZ, &size);
  }
  // Sends the process a signal, 0: none, waits for its end, and returns its status.
  int end_by(int signal) {
    int status = 0;
    ::kill(child_, signal);
    ::waitpid(std::exchange(child_, 0), &status, 0);
    return status;
  }

 private:
  int terminal_ = -1;
  pid_t child_ = -1;
  termios settings_{};
  std::string shown_;
};

TEST(LineReader, EditsALine) {
  Typist typist;
  EXPECT_EQ(typist.after("ac"s + kLeft + "b\r"), "line [abc]");
  EXPECT_EQ(typist.after("one three"s + kWordLeft + "two \r"), "line [one two three]");
  EXPECT_EQ(typist.after("yz"s + kHome + kErase + "x\r"), "line [xz]");
  EXPECT_EQ(typist.after("xone\x17two\x15 z"s + kHome + "\x19\r"), "line [two z]");
  EXPECT_EQ(typist.after("\r"), "line []");
  EXPECT_EQ(typist.after("a\tb\r"), "line [a\tb]");
}

TEST(LineReader, ArrowsBringBackEarlierLines) {
  Typist typist;
  for (const char* line : {"first\r", "\r", "second\r", "second\r"}) typist.after(line);
  EXPECT_EQ(typist.after(std::string(kUp) + kUp + "!\r"), "line [first!]");
}

TEST(LineReader, CharactersAreUtf8InAnyLocale) {
  ::setenv("LC_ALL", "C", 1);
  Typist typist;
  ::unsetenv("LC_ALL");
  EXPECT_EQ(typist.after("a\u00fc\u65e5\U0001f600"s + kLeft + "\x7fx\r"), "line [a\u00fcx\U0001f600]");
  EXPECT_EQ(typist.after("a\xff\xc3(b\x80\r"), "line [a(b]");  // bytes that are not UTF-8
  EXPECT_EQ(typist.after("\u00e9"s + kUp + "\r"), "line [a(b]");
}

TEST(LineReader, APastedTextIsOneLine) {
  Typist typist;
  EXPECT_EQ(typist.after("a\x1b[200~b\u00fc\r\r\tc\x03\r\x1b[201~d\r"), "line [ab\u00fc||\tc\x03"s + "d]");
  EXPECT_EQ(typist.after(kUp + "!\r"s), "line [ab\u00fc||\tc\x03"s + "d!]");
  EXPECT_EQ(typist.after("\x1b[200~\x1b[201~\r"), "line []");
  const std::string more_than_a_screen(5000, 'x');
  EXPECT_EQ(typist.after("\x1b[200~" + more_than_a_screen + "\x1b[201~\r"),
            "line [" + more_than_a_screen + "]");
}

TEST(LineReader, KeysThatAreUnknownDoNothing) {
  EXPECT_EQ(Typist().after("a\x1b[15~b\x1b[99;9Xc\x1b[5~\x1b[1;2Ad\r"), "line [abcd]");
}

TEST(LineReader, SaysHowALineEnded) {
  Typist typist;
  EXPECT_EQ(typist.after("typed in vain"s + kLeft + "\x03"), "interrupted [typed in vain]");
  EXPECT_EQ(typist.after("\x03"), "interrupted []");
  EXPECT_EQ(typist.after(kUp + "\r"s), "line []");  // nothing of it is remembered
  EXPECT_EQ(typist.after("\x04"), "ended []");
}

TEST(LineReader, KeysTypedAheadAreNotLost) {
  Typist typist;
  typist.wait_for(kPrompt);
  typist.type("first\rsecond\rthird\r");
  for (const char* line : {"line [first]", "line [second]", "line [third]"}) typist.wait_for(line);
}

TEST(LineReader, TheTerminalIsAsBeforeWheneverNothingIsRead) {
  Typist typist;
  typist.wait_for(kPrompt);
  EXPECT_FALSE(typist.terminal_is_as_before());
  typist.type("\x04");
  typist.wait_for("ended");
  EXPECT_TRUE(typist.terminal_is_as_before());

  Typist killed;
  killed.wait_for(kPrompt);
  const int status = killed.end_by(SIGTERM);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
  EXPECT_TRUE(killed.terminal_is_as_before());
  killed.wait_for("\x1b[?2004l");
}

TEST(LineReader, ASuspendedLineGoesOn) {
  Typist typist("libedit.so.2", read_lines_as_a_job);
  typist.wait_for(kPrompt);
  typist.type("abc\x1a");
  typist.wait_for("suspended");
  EXPECT_TRUE(typist.terminal_is_as_before());
  typist.type("\r");
  typist.wait_for(std::string(kPrompt) + "abc");
  typist.type("d\r\x04");
  typist.wait_for("line [abcd]");
  EXPECT_EQ(typist.end_by(0), 0);
}

TEST(LineReader, ALineIsDrawnAgainWhenTheTerminalGetsAnotherSize) {
  Typist typist;
  typist.wait_for(kPrompt);
  typist.type("abc");
  typist.wait_for("abc");
  typist.resize(20);
  typist.type("d");
  typist.wait_for("> abc");
  typist.type("\r");
  typist.wait_for("line [abcd]");
}

TEST(LineReader, WithoutTheLibraryLinesAreReadPlainly) {
  Typist typist("libmissing.so");
  typist.wait_for("> ");
  EXPECT_TRUE(typist.terminal_is_as_before());
  typist.type("a\u00fcx\x7f\r");
  typist.wait_for("line [a\u00fc]");
  typist.wait_for("> ");
  typist.type("\x04");
  typist.wait_for("ended []");
}

}  // namespace
}  // namespace trainer
