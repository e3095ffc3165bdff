#include "cli/aligned_tables.h"

#include <algorithm>
#include <numeric>
#include <sstream>

#include "trainer/base/strings.h"

#include "base/text.h"

namespace trainer::cli {
namespace {

constexpr size_t kGap = 2;
// A column of sentences is not made narrower than this.
constexpr size_t kReadable = 30;

using Cells = std::vector<std::string>;

size_t longest_word(const std::string& text) {
  std::istringstream words(text);
  size_t longest = 0;
  for (std::string word; words >> word;) longest = std::max(longest, count_characters(word));
  return longest;
}

class Table {
 public:
  // The first row names the columns.
  explicit Table(std::vector<Cells> rows) : rows_(std::move(rows)) {
    for (Cells& row : rows_) row.resize(rows_[0].size());
    for (size_t column = rows_[0].size(); column-- > 1;) {
      const auto is_empty = [&](const Cells& row) { return row[column].empty(); };
      if (!std::all_of(rows_.begin() + 1, rows_.end(), is_empty)) continue;
      for (Cells& row : rows_) row.erase(row.begin() + static_cast<std::ptrdiff_t>(column));
    }
  }

  std::string text(size_t width) const {
    const std::vector<size_t> widths = fitted(width);
    return widths.empty() ? as_list(width) : as_columns(widths);
  }

 private:
  size_t largest(size_t column, size_t from_row, size_t (*size)(const std::string&)) const {
    size_t most = 0;
    for (size_t row = from_row; row < rows_.size(); row++) most = std::max(most, size(rows_[row][column]));
    return most;
  }

  // The widths of the columns; {} if they do not fit. Names of columns are wrapped before sentences are.
  std::vector<size_t> fitted(size_t width) const {
    const auto characters = [](const std::string& text) { return count_characters(text); };
    std::vector<size_t> widths, least;
    for (size_t column = 0; column < rows_[0].size(); column++) {
      widths.push_back(largest(column, 0, characters));
      least.push_back(
          std::max(largest(column, 0, longest_word), std::min(largest(column, 1, characters), kReadable)));
    }
    const size_t gaps = kGap * (widths.size() - 1);
    while (std::accumulate(widths.begin(), widths.end(), gaps) > width) {
      size_t widest = widths.size();
      for (size_t i = 0; i < widths.size(); i++) {
        if (widths[i] > least[i] && (widest == widths.size() || widths[i] > widths[widest])) widest = i;
      }
      if (widest == widths.size()) return {};
      widths[widest]--;
    }
    return widths;
  }

  std::string as_columns(const std::vector<size_t>& widths) const {
    std::string out;
    const auto is_empty = [](const std::string& cell) { return cell.empty(); };
    if (!std::ranges::all_of(rows_[0], is_empty)) {
      Cells rule;
      for (const size_t width : widths) rule.emplace_back(width, '-');
      out = lines_of(rows_[0], widths) + lines_of(rule, widths);
    }
    for (size_t row = 1; row < rows_.size(); row++) out += lines_of(rows_[row], widths);
    return out;
  }

  static std::string lines_of(const Cells& row, const std::vector<size_t>& widths) {
    std::vector<std::vector<std::string>> cells;
    size_t lines = 1;
    for (size_t column = 0; column < row.size(); column++) {
      cells.push_back(wrapped(row[column], widths[column]));
      lines = std::max(lines, cells.back().size());
    }
    std::string out;
    for (size_t i = 0; i < lines; i++) {
      std::string line;
      for (size_t column = 0; column < cells.size(); column++) {
        const std::string cell = i < cells[column].size() ? cells[column][i] : "";
        line += padded_right(cell, widths[column] + kGap);
      }
      out += line.erase(line.find_last_not_of(' ') + 1) + "\n";
    }
    return out;
  }

  std::string as_list(size_t width) const {
    constexpr size_t kIndent = 4;
    std::string out;
    for (size_t row = 1; row < rows_.size(); row++) {
      out += rows_[row][0] + "\n";
      for (size_t column = 1; column < rows_[row].size(); column++) {
        const std::string &name = rows_[0][column], &cell = rows_[row][column];
        if (cell.empty()) continue;
        const std::string item = name.empty() ? cell : concat(name, ": ", cell);
        for (const std::string& line : wrapped(item, std::max(width, 2 * kIndent) - kIndent))
          out += std::string(kIndent, ' ') + line + "\n";
      }
    }
    return out;
  }

  std::vector<Cells> rows_;
};

// "| --- | --: |"
bool is_rule(const std::string& line) {
  return line.find_first_not_of("|-: ") == std::string::npos && line.find("---") != std::string::npos;
}

}  // namespace

Cells cells_of(const std::string& line) {
  std::istringstream text(line.substr(1));
  Cells cells;
  for (std::string cell; std::getline(text, cell, '|');) {
    const size_t begin = cell.find_first_not_of(' ');
    cells.push_back(begin == std::string::npos ? ""
                                               : cell.substr(begin, cell.find_last_not_of(' ') + 1 - begin));
  }
  return cells;
}

std::string with_aligned_tables(const std::string& page, size_t width) {
  std::istringstream in(page);
  std::vector<Cells> rows;
  std::string out;
  const auto end_table = [&] {
    if (!rows.empty()) out += Table(std::move(rows)).text(width);
    rows.clear();
  };
  bool code = false;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("```")) code = !code;
    if (!code && line.starts_with('|')) {
      if (!is_rule(line)) rows.push_back(cells_of(line));
      continue;
    }
    end_table();
    out += line + "\n";
  }
  end_table();
  return out;
}

}  // namespace trainer::cli
