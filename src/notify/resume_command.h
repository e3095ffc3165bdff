// The command that started this process.
#pragma once

#include <string>

namespace trainer {

// Returns the command that resumes the run, ready for a shell: that of this process, without secrets and
// without what would begin the run anew. "" if the process is not the program trainer.
std::string resume_command();

}  // namespace trainer
