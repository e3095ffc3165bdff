// What a teacher says of the rows of a run: computed before the model is loaded, and kept.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "trainer/config/config.h"
#include "trainer/data/dataset.h"
#include "trainer/models/model.h"
#include "trainer/parallel/ranks.h"
#include "trainer/text/tokenizer.h"

namespace trainer {

// With objective.name: distill, gives the data sets what the teacher says. Of objective.logits, reads the
// files and compares them with all rows of the training data; DataErrors name file and row. With
// objective.teacher, takes what is in the cache; the rest is computed in one pass over the data, by the ranks
// in turn, and kept there in parts, so that a pass that was interrupted goes on. What is kept says all that
// it depends on; what no longer fits is named, and computed again. Returns the tokens at a place, in place of
// objective.top_k. To be called while no model is in memory: the teacher is loaded, and freed again.
int64_t add_teacher(const Config& config, const Tokenizer& tokenizer, Dataset& train,
                    std::optional<Dataset>& eval, at::Device device, const Ranks& ranks);

// A model that is asked, and what it is called in the files.
struct Teacher {
  const Model& model;
  const Tokenizer& tokenizer;
  std::map<std::string, std::string> made_of;
};

// Writes what the model says of the data set into a folder, for objective.logits. Parts that are there, and
// fit, stay as they are.
void save_logits(const Teacher& teacher, const Dataset& dataset, const Config& config, at::Device device,
                 int64_t top, const std::filesystem::path& folder);

}  // namespace trainer
