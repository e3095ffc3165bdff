// What of a rendered conversation a model is to learn: from where its characters come from.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trainer/text/chat_template.h"

#include "text/jinja/text.h"

namespace trainer {

// What stands around an answer in a template, found by rendering a question and its answer.
struct AnswerFrame {
  std::string prompt;  // that generation begins with: "<|im_start|>assistant\n"
  std::string end;     // that follows an answer: "<|im_end|>"
};

// `answered`: a question and its answer; `asked`: the question with add_generation_prompt. Throws DataError
// with the reason where the answer cannot be told from the rest.
AnswerFrame find_answer_frame(const jinja::Text& answered, const std::string& asked);

// The answers of `messages` (places in the conversation) that were rendered. `asked(i)`: what stands before
// message i with add_generation_prompt, "" where the template refuses that; used where a turn does not begin
// as the frame says.
std::vector<RenderedChat::Answer> find_answers(const jinja::Text& text, size_t message_count,
                                               const std::vector<size_t>& messages, const AnswerFrame& frame,
                                               const std::function<std::string(size_t)>& asked);

// What the template has put into {% generation %}. A stretch that belongs to no message is one of the message
// before it.
std::vector<RenderedChat::Answer> generated_answers(const jinja::Text& text);

}  // namespace trainer
