#include "commands/chat.h"

#include <iostream>
#include <unistd.h>

#include "trainer/base/error.h"
#include "trainer/text/answer_text.h"

#include "commands/warn_of_length.h"

namespace trainer {
namespace {

// Prints an answer as its tokens come.
class Stream {
 public:
  explicit Stream(const AnswerText& text) : text_(text) {}

  void add(int32_t token) {
    ids_.push_back(token);
    const std::string text = text_.text(ids_);
    print(text, text_.shown(text));
  }
  void finish(const std::string& answer) {
    print(answer, answer.size());
    std::cout << std::endl;
  }

 private:
  void print(const std::string& text, size_t end) {
    if (end <= printed_) return;
    std::cout << text.substr(printed_, end - printed_) << std::flush;
    printed_ = end;
  }

  const AnswerText& text_;
  Tokens ids_;
  size_t printed_ = 0;
};

}  // namespace

void chat(const OpenModel& opened, const PromptEncoder& encoder, const GenerationConfig& config,
          const std::vector<std::string>& stops, at::Device device) {
  const AnswerText text(*opened.tokenizer, stops);
  const bool terminal = isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0;
  if (terminal) std::cout << "/exit or Ctrl-D ends the conversation." << std::endl;
  Row messages = encoder.opening();
  GenerationHooks hooks;
  hooks.stop = [&](const Tokens& ids) { return text.stops_at(ids); };
  for (uint64_t turn = 0;; turn++) {
    if (terminal) std::cout << "> " << std::flush;
    std::string line;
    if (!std::getline(std::cin, line) || line == "/exit") break;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    messages.push_back({{"role", "user"}, {"content", line}});
    const Tokens prompt = encoder.encode_messages(messages);
    warn_of_length(*opened.model, prompt, "the conversation");
    Stream stream(text);
    if (config.num_beams == 1) hooks.on_token = [&](size_t, int32_t token) { stream.add(token); };
    hooks.numbers = {turn};
    const std::string answer = text.text(generate(*opened.model, {prompt}, config, device, hooks)[0][0]);
    stream.finish(answer);
    messages.push_back({{"role", "assistant"}, {"content", answer}});
  }
  if (terminal) std::cout << std::endl;
}

}  // namespace trainer
