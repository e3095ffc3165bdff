// What another value of a key means for a run that is resumed: a mark on every key of the schema.
#pragma once

#include <string>
#include <vector>

namespace trainer {

enum class OnResume {
  may_change,  // the result stays the same, but for rounding; or it is about what is kept and shown
  is_logged,   // the result is another one, which is what a user wants who sets it: a line in the log
  fixes_run,   // refused, unless resume_changed names the key
  fixes_run_by_content,  // the same, by what it stands for: the content of files, a number that is worked out
};

// Full names ("training.dropout") in the order of the schema.
std::vector<std::string> keys_marked(OnResume mark);
std::vector<std::string> keys_of_section(const std::string& section);

// Throws ConfigError where there is no such key.
OnResume on_resume(const std::string& key);

}  // namespace trainer
