#include "text/chat/answer_spans.h"

#include <algorithm>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

namespace trainer {
using jinja::Origin;
using jinja::Text;

namespace {

// A part of the text that comes from one message.
struct Stretch {
  size_t begin, end;
  size_t said_begin = 0, said_end = 0;  // the message's own strings in it except its role; empty: none
  bool written = false;                 // the template itself wrote something in it
};

// The ranges of each message in the text. A message has several if the template writes the results of tools
// inside the turn that called them. Left out is what a template quotes from a message in the turn of another
// one, such as the name of the called function, and what it adds after the results.
std::vector<std::vector<Stretch>> stretches_of(const Text& text, size_t messages) {
  std::vector<std::vector<Stretch>> all(messages);
  Stretch* last = nullptr;
  size_t of = messages;
  for (const Text::Run& run : text.runs()) {
    if (!run.origin.has_message()) continue;
    if (run.origin.message() != of) {
      of = run.origin.message();
      all[of].push_back({run.begin, run.end});
      last = &all[of].back();
    }
    last->end = run.end;
    if (run.origin.part() == Origin::Part::written) last->written = true;
    if (run.origin.part() == Origin::Part::said) {
      if (last->said_end == 0) last->said_begin = run.begin;
      last->said_end = run.end;
    }
  }
  for (auto& stretches : all) {
    if (stretches.size() < 2) continue;
    if (std::ranges::any_of(stretches, &Stretch::written))
      std::erase_if(stretches, [](const Stretch& stretch) { return !stretch.written; });
    const auto says_nothing = [](const Stretch& stretch) { return stretch.said_end == 0; };
    stretches.erase(std::remove_if(stretches.begin() + 1, stretches.end(), says_nothing), stretches.end());
  }
  return all;
}

bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

size_t without_blanks(std::string_view text, size_t begin, size_t end) {
  while (end > begin && is_blank(text[end - 1])) end--;
  return end;
}

// The longest common prefix of `prompt` and `text`. If that is not all of `prompt`, it is shortened to the
// end of a tag or a line: "<think>" and "<tool_call>" have nothing in common.
size_t common_beginning(std::string_view prompt, std::string_view text) {
  const auto differ = std::ranges::mismatch(prompt, text).in1;
  size_t size = static_cast<size_t>(differ - prompt.begin());
  if (size == prompt.size()) return size;
  const auto is_border = [&](size_t at) {
    return std::string_view(">]\n").find(prompt[at - 1]) != std::string_view::npos;
  };
  while (size > 0 && !is_border(size)) size--;
  return size;
}

size_t begin_of_answer(std::string_view text, const Stretch& stretch, const std::string& prompt,
                       const std::function<std::string()>& asked) {
  const std::string_view turn = text.substr(stretch.begin, stretch.end - stretch.begin);
  if (turn.starts_with(prompt)) return stretch.begin + prompt.size();
  // In the first turn something else may come before it, such as a system prompt.
  const size_t head = stretch.said_end > 0 ? stretch.said_begin - stretch.begin : turn.size();
  if (const size_t at = turn.substr(0, head).rfind(prompt); at != std::string_view::npos)
    return stretch.begin + at + prompt.size();
  // This turn has another prompt, for example after the result of a tool.
  const std::string before = asked();
  if (!before.empty() && text.starts_with(before)) return before.size();
  if (!before.empty() && before.starts_with(text.substr(0, stretch.begin)))
    return stretch.begin + common_beginning(std::string_view(before).substr(stretch.begin), turn);
  return stretch.begin + common_beginning(prompt, turn);
}

// The position after the end of the turn, before any white space that follows. `next` gives the beginning of
// the next message; it is called only when the end is not found at once.
size_t end_of_answer(std::string_view text, const Stretch& stretch, size_t begin, const std::string& end,
                     const std::function<size_t()>& next) {
  const size_t said = std::max(begin, stretch.said_end);
  const size_t ended = without_blanks(text, said, std::max(said, stretch.end));
  if (text.substr(begin, ended - begin).ends_with(end)) return ended;
  // The end may be written after the turn: after the loop, or at the beginning of the next turn.
  for (const size_t at : {ended, stretch.end}) {
    if (at >= begin && text.substr(at).starts_with(end)) return at + end.size();
  }
  // The text in between belongs to no message if the template builds its text before it writes it.
  const size_t at = end.empty() ? std::string_view::npos : text.substr(0, next()).find(end, ended);
  return at == std::string_view::npos ? ended : at + end.size();
}

// The beginning of the first part after this one.
size_t next_stretch(const std::vector<std::vector<Stretch>>& all, const Stretch& stretch,
                    size_t end_of_text) {
  size_t next = end_of_text;
  for (const auto& stretches : all) {
    for (const Stretch& other : stretches) {
      if (other.begin >= stretch.end) next = std::min(next, other.begin);
    }
  }
  return next;
}

}  // namespace

AnswerFrame find_answer_frame(const Text& answered, const std::string& asked) {
  const std::string& text = answered.bytes();
  const std::vector<Stretch> stretches = stretches_of(answered, 2)[1];
  if (stretches.size() != 1 || stretches[0].said_end == 0)
    throw DataError("it does not write a question and then its answer");
  const Stretch& turn = stretches[0];
  AnswerFrame frame;
  const std::string_view before = std::string_view(text).substr(0, turn.begin);
  if (asked.starts_with(before)) {
    frame.prompt = asked.substr(before.size());
  } else {  // the text before differs: the prompt is the beginning of the answer's turn
    size_t size = turn.said_begin - turn.begin;
    while (size > 0 && !asked.ends_with(std::string_view(text).substr(turn.begin, size))) size--;
    if (size == 0)
      throw DataError("what it writes as the prompt for an answer is not in front of the answer");
    frame.prompt = text.substr(turn.begin, size);
  }
  size_t end = without_blanks(text, turn.said_end, turn.end);
  if (end == turn.said_end) end = without_blanks(text, turn.said_end, text.size());
  frame.end = text.substr(turn.said_end, end - turn.said_end);
  return frame;
}

std::vector<RenderedChat::Answer> find_answers(const Text& text, size_t message_count,
                                               const std::vector<size_t>& messages, const AnswerFrame& frame,
                                               const std::function<std::string(size_t)>& asked) {
  const std::string& bytes = text.bytes();
  const auto stretches = stretches_of(text, message_count);
  std::vector<RenderedChat::Answer> answers;
  for (const size_t message : messages) {
    for (const Stretch& stretch : stretches[message]) {
      const bool first = &stretch == &stretches[message].front();
      const bool last = &stretch == &stretches[message].back();
      const size_t begin = first
                               ? begin_of_answer(bytes, stretch, frame.prompt, [&] { return asked(message); })
                               : stretch.begin;
      const size_t end = end_of_answer(bytes, stretch, begin, last ? frame.end : "",
                                       [&] { return next_stretch(stretches, stretch, bytes.size()); });
      if (begin < end) answers.push_back({message, begin, end});
    }
  }
  std::ranges::sort(answers, {}, &RenderedChat::Answer::begin);
  return answers;
}

std::vector<RenderedChat::Answer> generated_answers(const Text& text) {
  std::vector<RenderedChat::Answer> answers;
  size_t message = 0;
  for (const Text::Run& run : text.runs()) {
    if (run.origin.has_message()) message = run.origin.message();
    if (!run.origin.is_generated()) continue;
    if (!answers.empty() && answers.back().end == run.begin && answers.back().message == message) {
      answers.back().end = run.end;
    } else {
      answers.push_back({message, run.begin, run.end});
    }
  }
  return answers;
}

}  // namespace trainer
