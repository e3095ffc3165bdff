// The files of a data set that its README.md names: `configs` of its front matter.
// https://huggingface.co/docs/hub/datasets-manual-configuration
#pragma once

#include <string>
#include <vector>

namespace trainer::hub {

// Files that are rows of one kind: {"train", {"main/train-*"}}.
struct CardSplit {
  std::string name;
  std::vector<std::string> patterns;
};

// An entry of `configs`, which the hub shows as a subset.
struct Subset {
  std::string name;
  bool is_default = false;        // if nothing else is asked for
  std::string folder;             // "" or "main/": all its files are below
  std::vector<CardSplit> splits;  // patterns from the root of the repository; empty: names of files say it
};

// Returns the subsets, in their order; none if README.md has no front matter, or nothing about files there.
// Throws DataError for front matter that is not YAML.
std::vector<Subset> read_subsets(const std::string& readme);

}  // namespace trainer::hub
