#include "adapters/merge_plan.h"

#include <cstring>
#include <optional>
#include <vector>

#include <ATen/ATen.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/models/score_head.h"

#include "adapters/target_modules.h"
#include "base/text.h"
#include "models/tensor_views.h"

namespace trainer {
namespace {

constexpr const char* kShared = "shared.weight";  // a T5's embedding

// The files of a T5 may hold copies of its one embedding, or only a copy.
void drop_copies(MergePlan& plan) {
  for (const std::string copy : {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}) {
    auto entry = plan.tensors.extract(copy);
    if (entry.empty() || plan.tensors.contains(kShared)) continue;
    entry.key() = kShared;
    plan.tensors.insert(std::move(entry));
  }
}

class Planner {
 public:
  Planner(const ModelWeights& base, const AdapterConfig& config, const SafetensorsFile& adapter,
          std::string embedding, bool tie_word_embeddings)
      : config_(config),
        adapter_(adapter),
        embedding_(std::move(embedding)),
        plan_(plan_copy(base, embedding_)) {
    const TensorView* head = find(base.tensors, kHead);
    const auto table = plan_.tensors.find(embedding_);
    tied_ = table != plan_.tensors.end() &&
            (head == nullptr || (tie_word_embeddings && same_bytes(*head, table->second.base)));
  }

  MergePlan make() {
    if (embedding_ == kShared) check_t5();
    if (tied_ && treats_head_alone()) untie();
    for (const auto& [name, view] : adapter_.tensors) replace(name, view);
    if (tied_ && !plan_.untied) add_shared();
    for (const auto& [name, view] : adapter_.tensors) {
      if (used_.contains(name)) continue;
      if (const auto module = before(name, ".lora_A.weight")) add_linear(*module);
      if (const auto module = before(name, ".lora_embedding_A")) add_embedding(*module);
    }
    for (const auto& [name, view] : adapter_.tensors) {
      if (!used_.contains(name))
        problems_.push_back(concat("unexpected: ", name, " ", shape_string(view.shape)));
    }
    if (tied_ && !plan_.untied && plan_.tensors.contains(kHead))
      plan_.tensors.at(kHead) = plan_.tensors.at(embedding_);
    return std::move(plan_);
  }

  const std::vector<std::string>& problems() const { return problems_; }

 private:
  static const TensorView* find(const std::map<std::string, TensorView>& tensors, const std::string& name) {
    const auto found = tensors.find(name);
    return found == tensors.end() ? nullptr : &found->second;
  }
  // "model.embed_tokens" of "model.embed_tokens.lora_embedding_A"
  static std::optional<std::string> before(const std::string& name, const std::string& ending) {
    if (!name.ends_with(ending)) return std::nullopt;
    return name.substr(0, name.size() - ending.size());
  }

  void check_t5() {
    for (const auto& [name, view] : adapter_.tensors) {
      if (name.starts_with("encoder.embed_tokens.") || name.starts_with("decoder.embed_tokens.")) {
        problems_.push_back(concat(name,
                                   ": a T5's directory holds one embedding for both stacks; this adapter "
                                   "gives each its own and cannot be merged"));
        used_[name] = true;
      }
    }
  }

  // PEFT gives each of a tied pair its own adapter or copy, unless it is configured to keep them tied.
  bool treats_head_alone() const {
    const auto& tensors = adapter_.tensors;
    const bool adapts = tensors.contains("lm_head.lora_A.weight") ||
                        tensors.contains(embedding_module() + ".lora_embedding_A");
    if (adapts && config_.use_dora) return true;
    if (adapts) return !config_.ensure_weight_tying;
    const TensorView *head = find(tensors, kHead), *table = find(tensors, embedding_);
    if (head == nullptr && table == nullptr) return false;
    if (head != nullptr && table != nullptr) return !same_bytes(*head, *table);
    return !config_.ensure_weight_tying;
  }

  std::string embedding_module() const { return embedding_.substr(0, embedding_.rfind('.')); }

  // The one adapter of a tied pair stands in the file under the names of both, or of the head alone.
  void add_shared() {
    const std::string module = embedding_module();
    if (!adapter_.tensors.contains("lm_head.lora_A.weight")) return;
    const TensorView *a = take("lm_head.lora_A.weight"), *b = take("lm_head.lora_B.weight");
    MergedTensor* weight = weight_of(module);
    if (a == nullptr || b == nullptr || weight == nullptr) return;
    if (!adapter_.tensors.contains(module + ".lora_embedding_A")) {
      add(*weight, module, *a, *b);
      return;
    }
    const TensorView *own_a = find(adapter_.tensors, module + ".lora_embedding_A"),
                     *own_b = find(adapter_.tensors, module + ".lora_embedding_B");
    if (own_a == nullptr || own_b == nullptr) return;
    if (wide(*a).equal(wide(*own_b).t()) && wide(*b).equal(wide(*own_a).t())) return;
    problems_.push_back(concat("different: lm_head.lora_A.weight and ", module,
                               ".lora_embedding_B, which are one adapter because of ensure_weight_tying"));
  }

  void untie() {
    plan_.untied = true;
    plan_.tensors[kHead] = plan_.tensors.at(embedding_);
  }

  // Saved modules, biases, and an embedding or head that is stored whole. PEFT's file also holds copies if a
  // saved module was resized.
  void replace(const std::string& name, const TensorView& view) {
    if (name.find(".lora_") != std::string::npos) return;
    for (const char* copy : {".modules_to_save.weight", ".original_module.weight"}) {
      if (const auto module = before(name, copy); module && adapter_.tensors.contains(*module + ".weight")) {
        used_[name] = true;
        return;
      }
    }
    std::string target = name;
    if (const size_t wrapper = target.find(".base_layer."); wrapper != std::string::npos)
      target.erase(wrapper, 11);
    used_[name] = true;
    const auto found = plan_.tensors.find(target);
    if (found == plan_.tensors.end() && is_of_score_head(target)) {
      MergedTensor& added = plan_.tensors[target];
      added.base = view;
      added.dtype = plan_.tensors.begin()->second.dtype;
      plan_.replaced++;
      return;
    }
    if (found == plan_.tensors.end()) {
      if (target != kHead || !tied_) used_.erase(name);
      return;  // a head that stays tied is stored as the embedding
    }
    const bool grows = target == embedding_ || target == kHead || target.ends_with(".embed_tokens.weight");
    TensorView& base = found->second.base;
    const bool fits =
        view.shape == base.shape ||
        (grows && view.shape.size() == 2 && view.shape[1] == base.shape[1] && view.shape[0] >= base.shape[0]);
    if (!fits) {
      misshapen(name, base.shape, view.shape);
      return;
    }
    base = view;
    plan_.replaced++;
  }

  void add_linear(const std::string& module) {
    MergedTensor* weight = weight_of(module);
    const TensorView* a = take(module + ".lora_A.weight");
    const TensorView* b = take(module + ".lora_B.weight");
    if (weight == nullptr || a == nullptr || b == nullptr) return;
    add(*weight, module, *a, *b);
    if (const TensorView* bias = take(module + ".lora_B.bias", false)) {
      const auto base = plan_.tensors.find(module + ".bias");
      if (base == plan_.tensors.end()) {
        problems_.push_back(concat(module, ".lora_B.bias: the base layer has no bias to merge it into"));
      } else {
        base->second.added = wide(*bias) * weight->scale;
      }
    }
  }

  void add_embedding(const std::string& module) {
    MergedTensor* weight = weight_of(module);
    const TensorView* a = take(module + ".lora_embedding_A");
    const TensorView* b = take(module + ".lora_embedding_B");
    if (weight == nullptr || a == nullptr || b == nullptr) return;
    weight->embedding = true;
    add(*weight, module, *a, *b);
  }

  void add(MergedTensor& weight, const std::string& module, const TensorView& a, const TensorView& b) {
    const LoraOptions options = lora_options(config_, module);
    const std::vector<int64_t>& shape = weight.base.shape;
    const int64_t in = shape.at(weight.embedding ? 0 : 1), out = shape.at(weight.embedding ? 1 : 0);
    if (a.shape != std::vector<int64_t>{options.r, in}) misshapen(module + "'s A", {options.r, in}, a.shape);
    if (b.shape != std::vector<int64_t>{out, options.r})
      misshapen(module + "'s B", {out, options.r}, b.shape);
    weight.a = wide(a);
    weight.b = wide(b);
    weight.scale = options.scale;
    if (options.dora) {
      if (const TensorView* magnitude = take(module + ".lora_magnitude_vector")) {
        if (magnitude->shape != std::vector<int64_t>{out})
          misshapen(module + ".lora_magnitude_vector", {out}, magnitude->shape);
        weight.magnitude = wide(*magnitude);
      }
    }
    plan_.merged++;
  }

  MergedTensor* weight_of(const std::string& module) {
    const auto found = plan_.tensors.find(module + ".weight");
    if (found != plan_.tensors.end() && found->second.base.shape.size() == 2) return &found->second;
    problems_.push_back(concat(module, ": the base model has no matrix ", module, ".weight"));
    return nullptr;
  }

  const TensorView* take(const std::string& name, bool required = true) {
    used_[name] = true;
    const TensorView* view = find(adapter_.tensors, name);
    if (view == nullptr && required) problems_.push_back(concat("missing: ", name));
    return view;
  }

  void misshapen(const std::string& name, const std::vector<int64_t>& expected,
                 const std::vector<int64_t>& found) {
    problems_.push_back(
        concat("misshapen: ", name, ": expected ", shape_string(expected), ", found ", shape_string(found)));
  }

  at::Tensor wide(const TensorView& view) const {
    return mapped_tensor(view, adapter_.mapping).to(at::kFloat, false, /*copy=*/true);
  }

  const AdapterConfig& config_;
  const SafetensorsFile& adapter_;
  std::string embedding_;
  MergePlan plan_;
  bool tied_ = false;
  std::map<std::string, bool> used_;
  std::vector<std::string> problems_;
};

}  // namespace

MergePlan plan_copy(const ModelWeights& base, const std::string& embedding) {
  MergePlan plan;
  for (const auto& [name, view] : base.tensors) {
    plan.tensors[name].base = view;
    plan.tensors[name].dtype = view.dtype;
  }
  if (embedding == kShared) drop_copies(plan);
  return plan;
}

MergePlan plan_merge(const ModelWeights& base, const AdapterConfig& config, const SafetensorsFile& adapter,
                     const std::string& embedding, bool tie_word_embeddings,
                     const std::filesystem::path& directory) {
  Planner planner(base, config, adapter, embedding, tie_word_embeddings);
  MergePlan plan = planner.make();
  if (!planner.problems().empty()) {
    throw of_family(ErrorCode::adapter,
                    FormatError(concat(directory.string(), ": the adapter does not fit its base model:\n  ",
                                       join_some(planner.problems(), 100, "\n  "))));
  }
  return plan;
}

}  // namespace trainer
