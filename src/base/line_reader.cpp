#include "base/line_reader.h"

#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdlib>
#include <cwchar>
#include <histedit.h>
#include <iostream>
#include <string_view>
#include <termios.h>
#include <unistd.h>
#include <unordered_map>

#include "base/dynamic_library.h"

namespace trainer {
namespace {

// Its functions; nullptr where the library is missing.
struct Libedit {
  DynamicLibrary library;
  decltype(::el_init)* init = library.find<decltype(::el_init)>("el_init");
  decltype(::el_end)* end = library.find<decltype(::el_end)>("el_end");
  decltype(::el_set)* set = library.find<decltype(::el_set)>("el_set");
  decltype(::el_gets)* gets = library.find<decltype(::el_gets)>("el_gets");
  decltype(::el_wgetc)* wgetc = library.find<decltype(::el_wgetc)>("el_wgetc");
  decltype(::el_push)* push = library.find<decltype(::el_push)>("el_push");
  decltype(::el_winsertstr)* insert = library.find<decltype(::el_winsertstr)>("el_winsertstr");
  decltype(::el_resize)* resize = library.find<decltype(::el_resize)>("el_resize");
  decltype(::history_init)* history_init = library.find<decltype(::history_init)>("history_init");
  decltype(::history_end)* history_end = library.find<decltype(::history_end)>("history_end");
  decltype(::history)* history = library.find<decltype(::history)>("history");
};

// State for the editor's functions and signal handlers, which get no pointer of ours.
Libedit libedit;
std::string current_prompt;
bool interrupted = false;
volatile std::sig_atomic_t resized = 0;
termios settings_before;

void write_at_once(std::string_view text) {
  [[maybe_unused]] const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
}

void mark_pasted_text() { write_at_once("\x1b[?2004h"); }

void restore_terminal() {
  write_at_once("\x1b[?2004l");
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &settings_before);
}

// A signal that ends the program must not leave a terminal behind that shows nothing of what is typed.
void restore_and_end(int number) {
  restore_terminal();
  std::signal(number, SIG_DFL);
  ::raise(number);
}

// While a line is edited: signals are handled here, because libedit would send them on to the whole process
// group; text is UTF-8 in any locale.
class Editing {
 public:
  Editing() : locale_before_(::uselocale(utf8())) {
    ::tcgetattr(STDIN_FILENO, &settings_before);
    mark_pasted_text();
    for (size_t i = 0; i < std::size(kHandled); i++) {
      struct sigaction action {};
      action.sa_handler = restore_and_end;
      action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
      if (kHandled[i] == SIGWINCH) {
        action.sa_handler = [](int) { resized = 1; };
        action.sa_flags = 0;  // read() is to return
      }
      ::sigaction(kHandled[i], &action, &before_[i]);
    }
  }
  ~Editing() {
    restore_terminal();
    for (size_t i = 0; i < std::size(kHandled); i++) ::sigaction(kHandled[i], &before_[i], nullptr);
    ::uselocale(locale_before_);
  }
  Editing(const Editing&) = delete;
  Editing& operator=(const Editing&) = delete;

 private:
  static locale_t utf8() {
    static const locale_t locale = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
    return locale;
  }

  static constexpr int kHandled[] = {SIGTERM, SIGHUP, SIGINT, SIGWINCH};
  locale_t locale_before_;
  struct sigaction before_[std::size(kHandled)]{};
};

char* prompt_of(EditLine*) { return current_prompt.data(); }

// Libedit's own gives up at a signal. Bytes that are not UTF-8 give nothing.
int read_character(EditLine* editor, wchar_t* character) {
  std::string bytes;
  for (char byte = 0;;) {
    if (resized != 0) {
      resized = 0;
      libedit.resize(editor);
      write_at_once("\r\x1b[J");
      libedit.set(editor, EL_REFRESH);
    }
    const ssize_t got = ::read(STDIN_FILENO, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return static_cast<int>(got);
    bytes += byte;
    std::mbstate_t state{};
    size_t length = std::mbrtowc(character, bytes.data(), bytes.size(), &state);
    if (length == static_cast<size_t>(-1)) {  // the byte may begin another character
      bytes = byte;
      state = {};
      length = std::mbrtowc(character, bytes.data(), bytes.size(), &state);
    }
    if (length <= bytes.size()) return 1;
    if (length == static_cast<size_t>(-1)) bytes.clear();
  }
}

// Ends the line as Enter does, which also puts the cursor below it.
unsigned char interrupt(EditLine* editor, int) {
  interrupted = true;
  libedit.push(editor, "\n");
  return CC_NORM;
}

unsigned char suspend(EditLine* editor, int) {
  libedit.set(editor, EL_PREP_TERM, 0);
  restore_terminal();
  ::raise(SIGTSTP);
  mark_pasted_text();
  libedit.set(editor, EL_PREP_TERM, 1);
  libedit.set(editor, EL_REFRESH);
  return CC_NORM;
}

unsigned char insert_pasted(EditLine* editor) {
  constexpr std::wstring_view kEnd = L"\x1b[201~";
  std::wstring text;
  for (wchar_t character = 0; !text.ends_with(kEnd);) {
    if (libedit.wgetc(editor, &character) != 1) return CC_EOF;
    if (character != L'\0') text += character == L'\r' ? L'\n' : character;
  }
  text.resize(text.size() - kEnd.size());
  while (text.ends_with(L'\n')) text.pop_back();
  libedit.insert(editor, text.c_str());
  return CC_REFRESH;
}

constexpr const char* kDelete = "\x1f";  // has no use of its own

// Keys that send ESC [ and more, as xterm and the Linux console do. Those that are not listed do nothing;
// libedit would insert what it does not know.
unsigned char press_sequence(EditLine* editor, int) {
  static const std::unordered_map<std::string_view, const char*> keys{
      {"A", "\x10"},   {"B", "\x0e"},     {"C", "\x06"},     {"D", "\x02"},     {"H", "\x01"},
      {"1~", "\x01"},  {"7~", "\x01"},    {"F", "\x05"},     {"4~", "\x05"},    {"8~", "\x05"},
      {"3~", kDelete}, {"1;5D", "\033b"}, {"1;3D", "\033b"}, {"1;5C", "\033f"}, {"1;3C", "\033f"}};
  std::string sequence;
  for (wchar_t character = 0; character < L'@' || character > L'~';) {
    if (libedit.wgetc(editor, &character) != 1) return CC_EOF;
    sequence += static_cast<char>(character);
  }
  if (sequence == "200~") return insert_pasted(editor);
  if (const auto key = keys.find(sequence); key != keys.end()) libedit.push(editor, key->second);
  return CC_NORM;
}

}  // namespace

LineReader::LineReader(const char* name) {
  libedit = {DynamicLibrary(name)};
  edits_ = libedit.set != nullptr && libedit.insert != nullptr;  // not every build of it has them
}

LineReader::~LineReader() {
  if (editor_ == nullptr) return;
  libedit.set(editor_, EL_EDITMODE, 0);  // the terminal and what was typed ahead stay as they are
  libedit.end(editor_);
  libedit.history_end(earlier_);
}

bool LineReader::is_possible() {
  if (::isatty(STDIN_FILENO) != 1 || ::isatty(STDOUT_FILENO) != 1) return false;
  const char* terminal = std::getenv("TERM");
  return terminal == nullptr || std::string_view(terminal) != "dumb";
}

void LineReader::open() {
  editor_ = libedit.init("trainer", stdin, stdout, stderr);
  earlier_ = libedit.history_init();
  HistEvent event;
  libedit.history(earlier_, &event, H_SETSIZE, 1000);
  libedit.history(earlier_, &event, H_SETUNIQUE, 1);
  libedit.set(editor_, EL_HIST, libedit.history, earlier_);
  libedit.set(editor_, EL_EDITOR, "emacs");
  libedit.set(editor_, EL_PROMPT, prompt_of);
  libedit.set(editor_, EL_GETCFN, read_character);
  libedit.set(editor_, EL_SETTY, "-d", "-isig", "-ixon", nullptr);  // Ctrl-C, -Z and -S are keys
  const auto add = [&](const char* key, const char* name, unsigned char (*function)(EditLine*, int)) {
    libedit.set(editor_, EL_ADDFN, name, name, function);
    libedit.set(editor_, EL_BIND, key, name, nullptr);
  };
  add("\x03", "interrupt", interrupt);
  add("\x1a", "suspend", suspend);
  add("\033[", "press-sequence", press_sequence);
  libedit.set(editor_, EL_BIND, kDelete, "ed-delete-next-char", nullptr);
  libedit.set(editor_, EL_BIND, "\t", "ed-insert", nullptr);
  libedit.set(editor_, EL_BIND, "\x15", "vi-kill-line-prev", nullptr);
}

LineReader::Ending LineReader::read(const std::string& prompt, std::string& line) {
  line.clear();
  std::cout << (edits_ ? "" : prompt) << std::flush;
  if (!edits_) {
    if (std::getline(std::cin, line)) return Ending::line;
    std::cout << std::endl;
    return Ending::ended;
  }
  const Editing editing;
  if (editor_ == nullptr) open();
  current_prompt = prompt;
  interrupted = false;
  libedit.set(editor_, EL_PREP_TERM, 1);  // before the prompt: Ctrl-C is a key from the first moment
  int length = 0;
  const char* typed = libedit.gets(editor_, &length);
  if (typed == nullptr) {
    std::cout << std::endl;
    return Ending::ended;
  }
  line = typed;
  line.pop_back();  // the line break
  if (interrupted) return Ending::interrupted;
  HistEvent event;
  if (!line.empty()) libedit.history(earlier_, &event, H_ENTER, line.c_str());
  return Ending::line;
}

}  // namespace trainer
