#include "models/random_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <ostream>
#include <string_view>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"
#include "trainer/models/load_model.h"

#include "base/random.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;

// Values are all `value`, or normal with this deviation around 0.
struct Distribution {
  double deviation = 0, value = 0;
};

Distribution of_t5(const std::string& name, const nlohmann::json& config) {
  const double factor = config_double(config, "initializer_factor", 1.0);
  const auto width = static_cast<double>(config_size(config, "d_model"));
  const auto head = static_cast<double>(config_size(config, "d_kv"));
  const auto heads = static_cast<double>(config_size(config, "num_heads"));
  const auto inner = static_cast<double>(config_size(config, "d_ff"));
  const auto scaled = [&](double values) { return Distribution{.deviation = factor / std::sqrt(values)}; };
  const auto is = [&](std::string_view end) { return name.ends_with(end); };
  if (is("layer_norm.weight")) return {.value = factor};
  if (is("shared.weight") || is("lm_head.weight")) return {.deviation = factor};
  if (is(".q.weight")) return scaled(width * head);
  if (is(".o.weight")) return scaled(heads * head);
  if (is(".wo.weight")) return scaled(inner);
  return scaled(width);  // k, v, wi, and the bias by distance
}

Distribution of_decoder(const std::string& name, const Parameter& parameter, const nlohmann::json& config) {
  if (parameter.shape.size() > 1) return {.deviation = config_double(config, "initializer_range", 0.02)};
  const bool adds_one = config.at("model_type").get<std::string>().find("gemma") != std::string::npos;
  if (name.ends_with("eoi_embedding")) return {.value = 0.0};
  return {.value = name.ends_with(".bias") || adds_one ? 0.0 : 1.0};
}

Distribution distribution_of(const std::string& name, const Parameter& parameter,
                             const nlohmann::json& config) {
  static constexpr std::array kEncoderDecoders{"t5", "mt5", "umt5"};
  static constexpr std::array kDecoders{"gemma2", "gemma3_text", "granite", "llama",   "mistral", "phi3",
                                        "qwen2",  "qwen3",       "smollm3", "t5gemma", "t5gemma2"};
  const auto type = config.at("model_type").get<std::string>();
  if (std::ranges::find(kEncoderDecoders, type) != kEncoderDecoders.end()) return of_t5(name, config);
  if (std::ranges::find(kDecoders, type) != kDecoders.end()) return of_decoder(name, parameter, config);
  throw FormatError(concat("model.init: random is not known for model_type '", type,
                           "'; save a model of Transformers that is made from its config, and give that"));
}

// T5Gemma's head has another name in files (formats/text_half.h).
std::string stored_head(const std::string& name, const nlohmann::json& config) {
  const bool other = name == "lm_head.weight" && config.contains("encoder");
  return other ? "lm_head.out_proj.weight" : name;
}

// The same numbers on every machine and in every order of the tensors.
at::Tensor random_tensor(const std::vector<int64_t>& shape, const Distribution& from, uint64_t key) {
  if (from.deviation == 0) return at::full(shape, from.value, at::kFloat);
  return at::normal(0.0, from.deviation, shape, at::detail::createCPUGenerator(key), at::kFloat);
}

}  // namespace

at::Tensor initial_score_head(const std::string& name, const std::vector<int64_t>& shape,
                              const nlohmann::json& config, uint64_t seed) {
  Distribution from;
  if (!name.ends_with(".bias")) {
    const bool of_t5 = name.starts_with("classification_head.");
    from.deviation =
        of_t5 ? config_double(config, "initializer_factor", 1.0) / std::sqrt(static_cast<double>(shape.at(1)))
              : config_double(config, "initializer_range", 0.02);
  }
  return random_tensor(shape, from, derive(derive(seed, "weights"), name));
}

void write_random_model(const fs::path& from, const fs::path& to, uint64_t seed) {
  const nlohmann::json config = read_model_config(from);
  const std::unique_ptr<Model> model = model_on_meta(from, at::kFloat, /*train_all=*/true);
  TensorSources sources;
  model->for_each_parameter([&](const std::string& name, Parameter& parameter) {
    const Distribution distribution = distribution_of(name, parameter, config);
    const uint64_t key = derive(derive(seed, "weights"), name);
    const auto write = [shape = parameter.shape, distribution, key](std::ostream& out) {
      const at::Tensor values = random_tensor(shape, distribution, key);
      out.write(static_cast<const char*>(values.const_data_ptr()),
                static_cast<std::streamsize>(values.nbytes()));
    };
    sources[stored_head(name, config)] = {Dtype::f32, parameter.shape, write};
  });
  copy_companion_files(from, to);
  write_model_weights(to, sources);
  write_atomically(to / "config.json", read_file(from / "config.json"));  // last: the directory is complete
}

}  // namespace trainer
