
#include <atomic>
#include <csignal>
#include <functional>
#include <iostream>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/text/answer_text.h"

#include "base/line_reader.h"
#include "commands/prompts.h"

namespace trainer {
namespace {

constexpr const char* kHelp =
    "  /clear         begin a new conversation; the system message stays\n"
    "  /system TEXT   set the system message, or remove it if there is no TEXT\n"
    "  /exit          end; so does Ctrl-D\n"
    "  /help          show this\n"
    "Ctrl-C ends an answer. With libedit, arrow keys move in the line and bring back earlier ones.\n";

using Show = std::function<void(const std::string& piece)>;

// Shows an answer as its tokens come.
class Stream {
 public:
  Stream(const AnswerText& text, Show show) : text_(text), show_(std::move(show)) {}

  void add(int32_t token) {
    ids_.push_back(token);
    const std::string text = text_.text(ids_);
    show(text, text_.shown(text));
  }
  void finish(const std::string& answer) { show(answer, answer.size()); }

 private:
  void show(const std::string& text, size_t end) {
    if (end <= shown_) return;
    show_(text.substr(shown_, end - shown_));
    shown_ = end;
  }

  const AnswerText& text_;
  Show show_;
  Tokens ids_;
  size_t shown_ = 0;
};

std::atomic<bool> interrupted{false};

// Between two tokens of an answer it is seen. A second one, if a token takes that long, ends the program.
void on_interrupt(int number) {
  if (!interrupted.exchange(true)) return;
  std::signal(number, SIG_DFL);
  ::raise(number);
}

// While it lives, Ctrl-C only sets `interrupted`.
class CatchInterrupt {
 public:
  CatchInterrupt() {
    interrupted = false;
    struct sigaction action {};
    action.sa_handler = on_interrupt;
    action.sa_flags = SA_RESTART;
    ::sigaction(SIGINT, &action, &before_);
  }
  ~CatchInterrupt() { ::sigaction(SIGINT, &before_, nullptr); }
  CatchInterrupt(const CatchInterrupt&) = delete;
  CatchInterrupt& operator=(const CatchInterrupt&) = delete;

 private:
  struct sigaction before_ {};
};

// The source of the user's lines: a terminal with editing, or stdin as it stands.
class Lines {
 public:
  bool terminal() const { return terminal_; }
  void answer_was_interrupted() { warned_ = true; }

  // Returns false at the end. On a terminal a Ctrl-C empties the line, and a second one in a row is the end.
  bool next(std::string& line) {
    if (!terminal_) return static_cast<bool>(std::getline(std::cin, line));
    while (true) {
      switch (reader_.read("> ", line)) {
        case LineReader::Ending::line:
          warned_ = false;
          return true;
        case LineReader::Ending::ended:
          return false;
        case LineReader::Ending::interrupted:
          if (warned_ && line.empty()) return false;
          warned_ = line.empty();
          if (warned_) std::cout << "Ctrl-C again, Ctrl-D or /exit ends the conversation." << std::endl;
      }
    }
  }

 private:
  LineReader reader_;
  bool terminal_ = LineReader::is_possible();
  bool warned_ = false;
};

// Answers conversations, each turn with random numbers of its own.
class Answerer {
 public:
  Answerer(const OpenModel& opened, const GenerationConfig& config, const std::vector<std::string>& stops,
           at::Device device)
      : opened_(opened),
        config_(config),
        device_(device),
        text_(*opened.tokenizer, stops, config.eos_token_ids) {}

  std::string answer(const Tokens& prompt, const Show& show) {
    warn_of_length(*opened_.model, prompt, "the conversation");
    Stream stream(text_, show);
    GenerationHooks hooks;
    hooks.stop = [&](const Tokens& ids) { return interrupted || text_.stops_at(ids); };
    if (config_.num_beams == 1) hooks.on_token = [&](size_t, int32_t token) { stream.add(token); };
    hooks.numbers = {turn_++};
    const std::string answer = text_.text(generate(*opened_.model, {prompt}, config_, device_, hooks)[0][0]);
    stream.finish(answer);
    return answer;
  }

 private:
  const OpenModel& opened_;
  const GenerationConfig& config_;
  at::Device device_;
  AnswerText text_;
  uint64_t turn_ = 0;
};

class Talk {
 public:
  Talk(const PromptEncoder& encoder, Answerer& answerer)
      : encoder_(encoder), answerer_(answerer), messages_(encoder.opening()) {}

  void clear() {
    if (!messages_.empty()) messages_.erase(messages_.begin() + (has_system() ? 1 : 0), messages_.end());
  }

  void set_system(const std::string& text) {
    if (has_system()) messages_.erase(messages_.begin());
    if (!text.empty()) messages_.insert(messages_.begin(), Row{{"role", "system"}, {"content", text}});
  }

  // Prints the answer, and keeps both. If that fails, the message is forgotten.
  void answer(const std::string& message) {
    messages_.push_back({{"role", "user"}, {"content", message}});
    try {
      const std::string answer = generate_answer();
      messages_.push_back({{"role", "assistant"}, {"content", answer}});
    } catch (...) {
      messages_.erase(messages_.end() - 1);
      throw;
    }
  }

 private:
  bool has_system() const { return !messages_.empty() && messages_.front()["role"] == "system"; }

  std::string generate_answer() {
    const auto print = [](const std::string& piece) { std::cout << piece << std::flush; };
    const std::string answer = answerer_.answer(encoder_.encode_messages(messages_), print);
    std::cout << std::endl;
    return answer;
  }

  const PromptEncoder& encoder_;
  Answerer& answerer_;
  Row messages_;
};

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

enum class Command { none, done, exit };

// Carries out a line that is a command. Any other line is a message, also one that begins with a path.
Command carry_out(const std::string& line, Talk& conversation, bool terminal) {
  const size_t space = line.find_first_of(" \t");
  const std::string word = line.substr(0, space);
  const std::string rest = space == std::string::npos ? "" : trimmed(line.substr(space));
  const auto say = [&](const char* text) {
    if (terminal) std::cout << text << std::endl;
  };
  if (word == "/system") {
    conversation.set_system(rest);
    say(rest.empty() ? "There is no system message now." : "The system message is set.");
    return Command::done;
  }
  if (line == "/exit" || line == "/quit" || line == "/bye") return Command::exit;
  if (line == "/clear") {
    conversation.clear();
    say("A new conversation.");
    return Command::done;
  }
  if (line == "/help" || line == "/?") {
    std::cout << kHelp << std::flush;
    return Command::done;
  }
  if (!terminal || !line.starts_with('/') || line.find_first_of("/ .", 1) != std::string::npos)
    return Command::none;
  std::cout << "There is no command " << line << "; /help lists them." << std::endl;
  return Command::done;
}

}  // namespace

void chat(const OpenModel& opened, const PromptEncoder& encoder, const GenerationConfig& config,
          const std::vector<std::string>& stops, at::Device device) {
  Lines lines;
  Answerer answerer(opened, config, stops, device);
  Talk conversation(encoder, answerer);
  if (lines.terminal()) std::cout << "/help lists the commands. Ctrl-D ends the conversation." << std::endl;
  for (std::string typed; lines.next(typed);) {
    const std::string line = trimmed(typed);
    if (line.empty()) continue;
    const Command command = carry_out(line, conversation, lines.terminal());
    if (command == Command::exit) break;
    if (command == Command::done) continue;
    if (!lines.terminal()) {
      conversation.answer(typed);
      continue;
    }
    const CatchInterrupt guard;
    try {
      conversation.answer(typed);
    } catch (const Error& error) {  // the conversation so far stays
      std::cout << std::endl;
      log::error(error.what());
    }
    if (interrupted) lines.answer_was_interrupted();
  }
}

void answer_json(const OpenModel& opened, const PromptEncoder& encoder, const GenerationConfig& config,
                 const std::vector<std::string>& stops, at::Device device) {
  Answerer answerer(opened, config, stops, device);
  const auto say = [](const char* key, const std::string& text) {
    const Row row{{key, text}};
    std::cout << row.dump(-1, ' ', false, Row::error_handler_t::replace) << std::endl;
  };
  const CatchInterrupt guard;
  int64_t number = 0;
  for (std::string line; std::getline(std::cin, line);) {
    number++;
    interrupted = false;
    try {
      const PlacedRow asked{Row::parse(line, nullptr, /*allow_exceptions=*/false), concat("stdin:", number)};
      if (!asked.row.is_object()) throw DataError(concat(asked.where, ": expected {\"messages\": [...]}"));
      const auto show = [&](const std::string& piece) { say("piece", piece); };
      say("answer", answerer.answer(encoder.encode(asked), show));
    } catch (const Error& error) {
      say("error", error.what());
    }
  }
}

}  // namespace trainer
