// Packed rows that come in few forms, so that a GPU can start recorded work for them
// (training/repeated_passes.h): each size is rounded up.
#pragma once

#include <cstdint>
#include <vector>

namespace trainer {

// Returns the smallest of few sizes that is n or more: all up to `parts`, and then `parts` of them from each
// power of two to the next.
int64_t one_of_few_sizes(int64_t n, int64_t parts);

// Returns how many tokens a row of so many gets.
int64_t size_of_row(int64_t tokens);

// Adds samples to two rows of the same samples, whose lengths are given: some of padding, which make the
// tokens of each row one of few numbers, and empty ones, which do the same for the samples. None is longer
// than the longest of its row: a GPU would wait for it alone.
void add_padding_samples(std::vector<int64_t>& lengths, std::vector<int64_t>& targets);

// Adds numbers to `rows`, which ascend, until there is one of few numbers of them, or `tokens`: those below
// `tokens` that it lacks, in ascending order.
void add_padding_rows(std::vector<int64_t>& rows, int64_t tokens);

}  // namespace trainer
