// Logging to stderr (results go to stdout). Levels: debug (--verbose), info, warning (also with --quiet),
// error. On a terminal, lines are broken between words; warnings and errors are coloured.
#pragma once

#include <functional>
#include <string>

namespace trainer::log {

enum class Level { debug, info, warning, error };

void set_level(Level level);
// Returns whether stderr shows this level.
bool is_shown(Level level);
// Also appends every line, from level debug on, to this file.
void add_file(const std::string& path);

void debug(const std::string& message);
void info(const std::string& message);
void warning(const std::string& message);
void error(const std::string& message);

// Like info(), but a terminal shows fitted(columns) instead, the same in at most so many columns.
void info_in_one_line(const std::string& message, const std::function<std::string(size_t)>& fitted);
// Like info(), on stderr only: for what is true only now.
void show(const std::string& message);

// Returns the seconds since the last line on stderr; since the first call of a function here if there was
// none.
double seconds_of_silence();

}  // namespace trainer::log
