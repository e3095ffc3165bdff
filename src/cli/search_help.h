// Finds what answers a word: a question, a part of a page, a key, an error or a command.
#pragma once

#include <string>
#include <vector>

namespace trainer::cli {

struct HelpEntry {
  std::string name;     // "reliability#nan-and-inf", "lora.r", "nan-steps", "chat"
  std::string command;  // shows it: "trainer help reliability#nan-and-inf"
  std::string title;    // "NaN and Inf"
  std::string text;     // what is searched besides name and title
  double weight = 1;    // how likely an answer of this kind is the one that is meant
};

// Returns the entries that answer `question`, the best first; none where no word of it is found. Words count
// by how rare they are, in a title more than in the text; common names of a thing (oom, vram) are looked for
// as it is called here.
std::vector<const HelpEntry*> best_answers(const std::vector<HelpEntry>& entries,
                                           const std::string& question);

// Returns whether the entry's name or title has what is asked for, and not only its text.
bool is_named_by(const HelpEntry& entry, const std::string& question);

}  // namespace trainer::cli
