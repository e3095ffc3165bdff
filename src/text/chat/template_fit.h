// Which of the chat templates that come with the program (configs/chat_templates) fits a model without one.
#pragma once

#include <string>

#include "trainer/text/tokenizer.h"

namespace trainer {

struct TemplateFit {
  std::string name;    // a value of data.chat_template: "chatml"
  std::string reason;  // "its tokenizer has <|im_start|> and <|im_end|>, the marks of ChatML (Qwen, SmolLM2)"
};

// Returns the template whose marks are tokens of the model, so that each is one id, and was seen when the
// model was made; if it has none of them, the one that needs only the end token.
TemplateFit fitting_template(const Tokenizer& tokenizer);

}  // namespace trainer
