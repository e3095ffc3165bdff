// A Modelfile, from which Ollama makes a model of a GGUF file.
// https://github.com/ollama/ollama/blob/main/docs/modelfile.md
#pragma once

#include <filesystem>
#include <string>

#include "trainer/text/chat_template.h"

#include "adapters/merged_model.h"

namespace trainer {

// Returns the chat template in the form of Go that Ollama renders, without `bos` in front, which it adds. It
// is found by rendering examples. "" if it cannot be written so: the template does more than put texts around
// messages.
std::string ollama_template(const ChatTemplate& chat_template, const std::string& bos);

// Returns the text of the Modelfile for the GGUF file `written`, which will be called `name`: its template,
// its stop tokens, and the parameters of generation_config.json that Ollama has. "" for an encoder-decoder,
// which Ollama does not run.
std::string modelfile(const MergedModel& model, const std::filesystem::path& written,
                      const std::string& name);

// Returns where it is to be: "Modelfile" beside `out`, or OUT's name with ".Modelfile" if there is another
// one.
std::filesystem::path modelfile_path(const std::filesystem::path& out);

}  // namespace trainer
