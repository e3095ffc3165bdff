// Finds the parts of a rendered conversation that a model should learn, from the origin of each character.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trainer/text/chat_template.h"

#include "text/jinja/text.h"

namespace trainer {

// The text that a template writes around an answer, found by rendering a question and its answer.
struct AnswerFrame {
  std::string prompt;  // comes before an answer: "<|im_start|>assistant\n"
  std::string end;     // comes after an answer: "<|im_end|>"
};

// `answered`: a question and its answer; `asked`: the question with add_generation_prompt. Throws DataError
// with the reason if the answer cannot be told from the rest.
AnswerFrame find_answer_frame(const jinja::Text& answered, const std::string& asked);

// The answers of `messages` (indices in the conversation) that were rendered. `asked(i)` returns the text
// before message i with add_generation_prompt, or "" if the template refuses it. It is called if a turn does
// not begin as in the frame.
std::vector<RenderedChat::Answer> find_answers(const jinja::Text& text, size_t message_count,
                                               const std::vector<size_t>& messages, const AnswerFrame& frame,
                                               const std::function<std::string(size_t)>& asked);

// The text inside {% generation %}. A part that belongs to no message counts for the message before it.
std::vector<RenderedChat::Answer> generated_answers(const jinja::Text& text);

}  // namespace trainer
