#include "trainer/models/generate.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "trainer/base/files.h"
#include "trainer/formats/model_directory.h"

namespace trainer {
namespace {

using Tokens = std::vector<int32_t>;

// [batch, longest] int64, padded with zeros, and the lengths.
std::pair<at::Tensor, at::Tensor> padded(const std::vector<Tokens>& inputs, at::Device device) {
  size_t longest = 1;
  for (const Tokens& input : inputs) longest = std::max(longest, input.size());
  const int64_t batch = static_cast<int64_t>(inputs.size());
  at::Tensor ids = at::zeros({batch, static_cast<int64_t>(longest)}, at::kLong),
             lengths = at::empty({batch}, at::kLong);
  for (size_t i = 0; i < inputs.size(); i++) {
    std::ranges::copy(inputs[i], ids.mutable_data_ptr<int64_t>() + i * longest);
    lengths.mutable_data_ptr<int64_t>()[i] = static_cast<int64_t>(inputs[i].size());
  }
  return {ids.to(device), lengths.to(device)};
}

// Continues all sequences from `tokens` [batch, n] until each has ended.
std::vector<Tokens> continue_greedily(Generation& generation, at::Tensor tokens,
                                      const GreedyOptions& options) {
  const size_t batch = static_cast<size_t>(tokens.size(0));
  std::vector<Tokens> out(batch);
  std::vector<bool> ended(batch, false);
  for (int64_t step = 0; step < options.max_new_tokens; step++) {
    const at::Tensor next = generation.next_logits(tokens).argmax(1, /*keepdim=*/true);
    const at::Tensor host = next.to(at::kCPU);
    for (size_t i = 0; i < batch; i++) {
      if (ended[i]) continue;
      const int32_t token = static_cast<int32_t>(host.const_data_ptr<int64_t>()[i]);
      out[i].push_back(token);
      ended[i] = std::ranges::find(options.eos_ids, token) != options.eos_ids.end();
    }
    if (std::ranges::find(ended, false) == ended.end()) break;
    tokens = next;
  }
  return out;
}

}  // namespace

std::vector<int32_t> eos_token_ids(const std::filesystem::path& directory) {
  for (const char* file : {"generation_config.json", "config.json"}) {
    if (!std::filesystem::exists(directory / file)) continue;
    const auto json = nlohmann::json::parse(read_file(directory / file), nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("eos_token_id")) continue;
    const nlohmann::json& eos = json["eos_token_id"];
    if (eos.is_number_integer()) return {eos.get<int32_t>()};
    if (eos.is_array()) return eos.get<std::vector<int32_t>>();
  }
  return {};
}

std::vector<Tokens> generate_greedy(const Model& model, const std::vector<Tokens>& inputs,
                                    const GreedyOptions& options, at::Device device) {
  at::NoGradGuard no_grad;
  if (model.encoder_decoder()) {
    const auto [ids, lengths] = padded(inputs, device);
    const int64_t start = model.collate_options().decoder_start_id;
    const std::unique_ptr<Generation> generation = model.generate(ids, lengths);
    return continue_greedily(*generation, at::full({ids.size(0), 1}, start, ids.options()), options);
  }
  std::vector<Tokens> out;
  for (const Tokens& input : inputs) {
    const auto [ids, lengths] = padded({input}, device);
    const std::unique_ptr<Generation> generation = model.generate(ids, lengths);
    out.push_back(continue_greedily(*generation, ids, options)[0]);
  }
  return out;
}

}  // namespace trainer
