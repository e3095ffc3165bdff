// A run of a few seconds in this process: the golden Qwen2 with a matching tokenizer, embedding and data.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "trainer/base/files.h"
#include "trainer/config/load.h"
#include "trainer/formats/model_directory.h"
#include "trainer/formats/safetensors.h"
#include "trainer/text/tokenizer.h"

#include "models/tensor_views.h"
#include "run/run_state.h"
#include "support/temporary_directory.h"

namespace trainer::test {

class TinyRun {
 public:
  TinyRun() {
    const std::filesystem::path goldens = std::filesystem::path(SOURCE_DIR) / "tests/goldens";
    const std::filesystem::path model = directory_ / "model";
    std::filesystem::create_directory(model);
    for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
      std::filesystem::copy_file(goldens / "text/smollm2" / file, model / file);
    const int64_t vocabulary = load_tokenizer(model)->vocab_size();
    nlohmann::json config = nlohmann::json::parse(read_file(goldens / "models/qwen2/model/config.json"));
    config["vocab_size"] = vocabulary;
    write_atomically(model / "config.json", config.dump());
    const ModelWeights weights = read_model_weights(goldens / "models/qwen2/model");
    std::map<std::string, at::Tensor> tensors;
    TensorSources sources;
    for (const auto& [name, view] : weights.tensors) {
      tensors[name] =
          at::from_blob(view.data, view.shape, at::TensorOptions().dtype(scalar_type(view.dtype)));
      if (name == "model.embed_tokens.weight")
        tensors[name] = at::arange(vocabulary * 32).reshape({vocabulary, 32}).sin().mul(0.1);
      sources[name] = source_of(tensors[name]);
    }
    write_model_weights(model, sources);
    std::ofstream data(directory_ / "train.jsonl");
    for (int i = 0; i < 20; i++)
      data << nlohmann::json{{"text", "row " + std::to_string(i * i) + " of the data"}}.dump() << '\n';
  }

  // Conversations, and a template that writes the date before them. Returns what to override for them.
  std::vector<std::string> dated_chat() const {
    std::ofstream rows(directory_ / "chat.jsonl");
    for (int i = 0; i < 20; i++) {
      const nlohmann::json messages{{{"role", "user"}, {"content", "row " + std::to_string(i * i)}},
                                    {{"role", "assistant"}, {"content", "of the data"}}};
      rows << nlohmann::json{{"messages", messages}}.dump() << '\n';
    }
    std::ofstream(directory_ / "dated.jinja") << "{{ strftime_now('%d %B %Y') }}{% for m in messages %}{{ "
                                                 "m.role[0] ~ m.content ~ '|' }}{% endfor %}"
                                                 "{% if add_generation_prompt %}a{% endif %}";
    return {"data.train=" + (directory_ / "chat.jsonl").string(), "data.kind=chat",
            "data.chat_template=" + (directory_ / "dated.jinja").string()};
  }

  std::filesystem::path output(const std::string& name) const { return directory_ / name; }

  Config config(const std::string& name, std::vector<std::string> overrides = {}) const {
    std::vector<std::string> all{"model.path=" + (directory_ / "model").string(),
                                 "model.dtype=fp32",
                                 "data.train=" + (directory_ / "train.jsonl").string(),
                                 "data.kind=text",
                                 "output_dir=" + output(name).string(),
                                 "device=cpu",
                                 "training.max_steps=6",
                                 "training.batch_size=2",
                                 "training.effective_batch_size=4",
                                 "training.logging_steps=1",
                                 "optimizer.learning_rate=1e-2"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    return load_training_config(std::nullopt, all);
  }

 private:
  TemporaryDirectory directory_;
};

}  // namespace trainer::test
