// trainer models: the families that are supported, and whether a model is one of them.
#include <algorithm>
#include <iostream>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/peft.h"

#include "base/text.h"
#include "commands/find_model.h"
#include "commands/library.h"
#include "export/gguf_layout.h"
#include "models/families.h"
#include "run/end_of_run.h"

namespace trainer {
namespace {

std::string part_loaded(const Family& family) {
  return family.text_halves.empty() ? "all of it" : concat("text half (", join(family.text_halves), ")");
}

bool is_written_as_gguf(const Family& family) {
  return has_gguf(family.model_type) || std::ranges::any_of(family.text_halves, has_gguf);
}

// The table of docs/models.md.
void print_markdown() {
  std::cout << "| model_type | models | loaded | trained | base in | exported |\n"
            << "| --- | --- | --- | --- | --- | --- |\n";
  for (const Family& family : families()) {
    std::cout << "| `" << family.model_type << "` | " << family.models << " | " << part_loaded(family)
              << " | full, LoRA, DoRA | NF4, FP8 | safetensors, NF4, FP8"
              << (is_written_as_gguf(family) ? ", GGUF" : "") << " |\n";
  }
}

void print_list() {
  size_t width = 0;
  for (const Family& family : families()) width = std::max(width, family.model_type.size());
  for (const Family& family : families()) {
    std::cout << padded_right(family.model_type, width + 2) << family.models;
    if (!family.text_halves.empty()) std::cout << "; the text half of a model of texts and images";
    std::cout << "\n";
  }
}

const char* word_for(ModelVerdict::Kind kind) {
  switch (kind) {
    case ModelVerdict::Kind::known:
      return "known";
    case ModelVerdict::Kind::near:
      return "near";
    case ModelVerdict::Kind::unsupported:
      return "not";
  }
  return "";
}

void print_verdict(const std::string& name, const std::string& path) {
  std::filesystem::path model = find_model(path);
  std::string of = name;
  if (is_adapter_directory(model)) {
    of += " (an adapter; of its base)";
    model = base_directory(model);
  }
  const ModelVerdict verdict = verdict_on(model);
  std::cout << of << ": " << word_for(verdict.kind) << ": " << verdict.text << "\n";
}

void run_models(const ModelsOptions& options) {
  if (options.markdown) return print_markdown();
  if (options.names.empty()) return print_list();
  for (size_t i = 0; i < options.names.size(); i++) print_verdict(options.names[i], options.paths[i]);
}

const InLibrary models_in_library(+[](ModelsOptions& options) {
  translate_torch_errors("No weights are loaded here.", [&] { run_models(options); });
});

}  // namespace
}  // namespace trainer
