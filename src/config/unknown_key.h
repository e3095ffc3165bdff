// What to say of a key that does not exist.
#pragma once

#include <string>

namespace trainer::config {

// "unknown key; did you mean training.batch_size?", or what a foreign or later name is here.
std::string unknown_key(const std::string& section, const std::string& name);

// What is known of a name from Hugging Face TrainingArguments, LLaMA-Factory, axolotl or a later version of
// this program; `key` is this program's "section.key" where there is a plain counterpart.
struct ForeignName {
  const char* name;    // lower case; "section.key" only where the bare name would mean something else
  const char* key;     // "" when there is none
  const char* advice;  // replaces the standard sentence when not ""
};

const ForeignName* find_foreign_name(const std::string& name);

// What a value that other trainers have for a section or a key means here; empty: nothing is known of it.
std::string advice_for_value(const std::string& name, const std::string& value);

}  // namespace trainer::config
