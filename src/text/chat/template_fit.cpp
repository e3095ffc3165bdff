#include "text/chat/template_fit.h"

#include <array>

#include "trainer/base/strings.h"

namespace trainer {
namespace {

struct Shipped {
  const char *name, *begin, *end;  // two marks that the template writes
  const char* whose;
};
constexpr std::array<Shipped, 5> kShipped{
    {{"chatml", "<|im_start|>", "<|im_end|>", "ChatML, as Qwen and SmolLM2 have it"},
     {"llama3", "<|start_header_id|>", "<|eot_id|>", "Llama 3"},
     {"gemma", "<start_of_turn>", "<end_of_turn>", "Gemma"},
     {"mistral", "[INST]", "[/INST]", "Mistral"},
     {"bars", "<|user|>", "<|assistant|>", "Phi"}}};

}  // namespace

TemplateFit fitting_template(const Tokenizer& tokenizer) {
  for (const Shipped& shipped : kShipped) {
    if (tokenizer.token_to_id(shipped.begin) && tokenizer.token_to_id(shipped.end))
      return {shipped.name, concat("its tokenizer has ", shipped.begin, " and ", shipped.end,
                                   ", the marks of ", shipped.whose)};
  }
  return {"plain", "its tokenizer has no tokens for conversations, and this one needs only the end token"};
}

}  // namespace trainer
