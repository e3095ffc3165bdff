// The pieces of a sample as lines for a terminal or a file.
#pragma once

#include <string>
#include <vector>

#include "trainer/data/report.h"
#include "trainer/data/sample_view.h"

namespace trainer {

// Broken at `width` columns (0: one line). What is supervised stands in colour, or in [[ ]]. Control
// characters are written as escapes (\n), and of a long piece the middle is left out.
std::vector<std::string> marked_lines(const std::vector<SampleView::Piece>& pieces, const TextStyle& style,
                                      size_t width);

}  // namespace trainer
