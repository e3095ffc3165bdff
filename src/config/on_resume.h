// What a changed value means when a run is resumed: every key of the schema has one of these marks.
#pragma once

#include <string>
#include <vector>

namespace trainer {

enum class OnResume {
  may_change,            // the result is the same up to rounding, or only saved files and output change
  is_logged,             // the result changes, as the user intends: the change is logged
  fixes_run,             // refused, unless resume_changed names the key
  fixes_run_by_content,  // like fixes_run, but compares the meaning: file content, a computed number
};

// Returns full names ("training.dropout") in the order of the schema.
std::vector<std::string> keys_marked(OnResume mark);
std::vector<std::string> keys_of_section(const std::string& section);

// Returns the mark of a key. Throws ConfigError when the key does not exist.
OnResume on_resume(const std::string& key);

}  // namespace trainer
