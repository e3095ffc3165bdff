// Formats the pieces of a sample as lines for a terminal or a file.
#pragma once

#include <string>
#include <vector>

#include "trainer/data/report.h"
#include "trainer/data/sample_view.h"

namespace trainer {

// Returns the lines, wrapped at `width` columns (0: one line). Supervised text is in colour, or in [[ ]].
// Control characters are escaped (\n), and the middle of a long piece is left out.
std::vector<std::string> marked_lines(const std::vector<SampleView::Piece>& pieces, const TextStyle& style,
                                      size_t width);

}  // namespace trainer
