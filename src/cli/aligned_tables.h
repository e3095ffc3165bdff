// The tables of a Markdown page, for reading on a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace trainer::cli {

// Returns the cells of a line "| a | b |", without the spaces around them.
std::vector<std::string> cells_of(const std::string& line);

// Returns the page with its tables as columns of at most `width` characters in all. Long cells are wrapped. A
// table whose columns would be too narrow becomes a list: the first cell of each row, and below it the others
// with the names of their columns. All else, also what looks like a table in a block of code, stays.
std::string with_aligned_tables(const std::string& page, size_t width);

}  // namespace trainer::cli
