// Logging to stderr (results go to stdout). Levels: debug (--verbose), info, warning (also with --quiet),
// error.
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
// Sets a function that is called before each log line, so that a progress line on the terminal can be cleared
// first. nullptr: none.
void set_before_line(void (*callback)());

// Sets a function that also gets every line from level info on, in the thread that logs it. It must not log.
// nullptr: none; when this returns, the function before is not running and is not called again.
void set_listener(std::function<void(Level level, const std::string& message)> listener);

void debug(const std::string& message);
void info(const std::string& message);
void warning(const std::string& message);
void error(const std::string& message);

}  // namespace trainer::log
