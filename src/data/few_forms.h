// Packed rows that come in few forms, so that a GPU can start recorded work for them
// (training/repeated_passes.h): each size is rounded up.
#pragma once

#include <cstdint>
#include <vector>

namespace trainer {

// Returns the smallest of few sizes that is n or more: all up to `parts`, and then `parts` of them from each
// power of two to the next.
int64_t one_of_few_sizes(int64_t n, int64_t parts);

// Adds samples to two rows of the same samples, whose lengths are given: one of padding, which makes the
// tokens of each row one of few numbers, and empty ones, which do the same for the samples.
void add_padding_samples(std::vector<int64_t>& lengths, std::vector<int64_t>& targets);

// Returns how many labels a row of so many tokens gets in place of `labels`.
int64_t padded_labels(int64_t labels, int64_t tokens);

// Returns the first of the numbers from 0 on that `rows`, in ascending order, has not.
int64_t first_free(const std::vector<int64_t>& rows);

}  // namespace trainer
