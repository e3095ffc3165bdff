// Chat templates in the form that Ollama renders.
#include "export/modelfile.h"

#include <gtest/gtest.h>

#include "trainer/base/files.h"

#include "support/temporary_directory.h"

namespace trainer {
namespace {

using test::TemporaryDirectory;

std::string in_go(const std::string& jinja, const std::string& bos = "") {
  return ollama_template(ChatTemplate({{"default", {jinja, "template"}}}, {{"bos_token", "<s>"}}), bos);
}

// The form of all templates: what begins a conversation, with and without a system message, and then what is
// around each message.
std::string go(const std::string& system_head, const std::string& after_system, const std::string& head,
               const std::string& before_question, const std::string& asks,
               const std::string& before_answer) {
  return "{{ if .System }}" + system_head + "{{ .System }}" + after_system + "{{ else }}" + head +
         "{{ end }}{{ range $i, $_ := .Messages }}{{ $last := eq (len (slice $.Messages $i)) 1 }}"
         "{{ if eq .Role \"user\" }}{{ if or (eq $i 0) (and (eq $i 1) $.System) }}{{ else }}" +
         before_question + "{{ end }}{{ .Content }}{{ if $last }}" + asks +
         "{{ end }}{{ else if eq .Role \"assistant\" }}" + before_answer + "{{ .Content }}{{ end }}{{ end }}";
}

TEST(OllamaTemplate, MessagesAllOfOneKind) {
  const std::string chatml =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
  const std::string question = "<|im_end|>\n<|im_start|>user\n",
                    answer = "<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(in_go(chatml),
            go("<|im_start|>system\n", question, "<|im_start|>user\n", question, answer, answer));
}

TEST(OllamaTemplate, TheBosThatOllamaAddsIsLeftOut) {
  const std::string jinja = "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}";
  EXPECT_EQ(in_go(jinja, "<s>"), go("[system]", "[user]", "[user]", "[user]", "", "[assistant]"));
  EXPECT_EQ(in_go(jinja, ""), go("<s>[system]", "[user]", "<s>[user]", "[user]", "", "[assistant]"));
}

// As Qwen2.5 and Gemma: a system message that is not given has a default; one that is given is part of the
// first question.
TEST(OllamaTemplate, SystemMessagesOfTheirOwnKind) {
  const std::string with_default =
      "{% if messages[0].role != 'system' %}[system]be kind{% endif %}"
      "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}";
  EXPECT_EQ(in_go(with_default),
            go("[system]", "[user]", "[system]be kind[user]", "[user]", "", "[assistant]"));
  const std::string inside =
      "{% set first = '' %}{% if messages[0].role == 'system' %}{% set first = messages[0].content + '\n\n' "
      "%}"
      "{% set messages = messages[1:] %}{% endif %}{% for m in messages %}[{{ m.role }}]"
      "{% if loop.first %}{{ first }}{% endif %}{{ m.content }}{% endfor %}";
  EXPECT_EQ(in_go(inside), go("[user]", "\n\n", "[user]", "[user]", "", "[assistant]"));
}

TEST(OllamaTemplate, ATemplateThatRefusesSystemMessagesHasNoPlaceForThem) {
  const std::string jinja =
      "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}"
      "[{{ m.role }}]{{ m.content }}{% endfor %}";
  EXPECT_EQ(in_go(jinja), go("", "", "[user]", "[user]", "", "[assistant]"));
}

TEST(OllamaTemplate, WhatIsNotPutAroundMessagesHasNoForm) {
  EXPECT_EQ(in_go("{% for m in messages %}{{ m.content | upper }}{% endfor %}"), "");
  EXPECT_EQ(
      in_go("{% for m in messages %}{{ loop.index }}{{ m.content }}{% endfor %}{{ messages | length }}"), "");
  EXPECT_EQ(in_go("{% for m in messages %}{{ '{{' }}{{ m.content }}{% endfor %}"), "");
}

TEST(Modelfile, AnotherOneIsNotOverwritten) {
  const TemporaryDirectory directory;
  EXPECT_EQ(modelfile_path(directory / "a.gguf"), directory / "Modelfile");
  write_atomically(directory / "Modelfile", "FROM ./a.gguf\nPARAMETER stop \"x\"\n");
  EXPECT_EQ(modelfile_path(directory / "a.gguf"), directory / "Modelfile");
  EXPECT_EQ(modelfile_path(directory / "b.gguf"), directory / "b.Modelfile");
}

}  // namespace
}  // namespace trainer
