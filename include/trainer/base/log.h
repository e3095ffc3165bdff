// Logging to stderr (results go to stdout). Levels: debug (--verbose), info, warning (also with --quiet),
// error. On a terminal, lines are broken between words; warnings and errors are coloured.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace trainer::log {

enum class Level { debug, info, warning, error };

void set_level(Level level);
// Returns whether stderr shows this level.
bool is_shown(Level level);
// Also appends every line, from level debug on, to this file.
void add_file(const std::string& path);

// Sets a function that also gets every line from level info on, in the thread that logs it. It must not log.
// nullptr: none; when this returns, the function before is not running and is not called again.
void set_listener(std::function<void(Level level, const std::string& message)> listener);

void debug(const std::string& message);
void info(const std::string& message);
void warning(const std::string& message);
void error(const std::string& message);

// Like info(), but a terminal shows fitted(columns) instead, the same in at most so many columns.
void info_in_one_line(const std::string& message, const std::function<std::string(size_t)>& fitted);
// Like info(), on stderr only: for what is true only now.
void show(const std::string& message);

// Makes this process one of several that share a terminal: of a rank above 0, stderr shows only warnings and
// errors from now on, with "rank 2: " in front. Rank 0 stays as it is.
void speak_as_rank(int64_t rank);
// Returns "rank 2: ", "" for rank 0 and where nobody has called speak_as_rank().
std::string speaker();

// Returns the seconds since the last line on stderr; since the first call of a function here if there was
// none.
double seconds_of_silence();

}  // namespace trainer::log
