// Finds the block of an answer that holds its reasoning ("<think> ... </think>").
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/text/chat_template.h"

#include "text/chat/answer_spans.h"
#include "text/jinja/text.h"

namespace trainer {

// What a template writes around the reasoning of an answer, without white space. `open` is "" if the prompt
// for an answer opens the block; both are "" if the template writes no reasoning.
struct ReasoningTags {
  std::string open, close;
};

// Finds the tags in an example: a rendered question and its answer, which begins at byte `begin` and says
// `reasoning` and then `content`.
ReasoningTags find_reasoning_tags(const std::string& text, size_t begin, const std::string& reasoning,
                                  const std::string& content);

// Sets `after_reasoning` and `empty_reasoning` of the answers. Where the template writes no reasoning, tags
// like <think> and [THINK] show the block.
void find_reasoning(const jinja::Text& text, const nlohmann::ordered_json& messages,
                    const ReasoningTags& tags, std::vector<RenderedChat::Answer>& answers);

}  // namespace trainer
