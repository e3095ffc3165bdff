#include "export/compare_logits.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <malloc.h>
#include <map>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "trainer/adapters/lora.h"
#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/mappings.h"
#include "base/progress.h"

namespace trainer {
namespace {

constexpr int32_t kPromptTokens = 16;

// An fp32 copy in its own memory, because the rounding of products depends on where their operands lie in
// memory. The file's pages are given back.
at::Tensor wide_copy(const Weight& value) {
  at::Tensor copy = value.copy(at::kFloat);
  for (const at::Tensor& stored : value.tensors()) {
    const bool is_mapped = !stored.storage().resizable();
    if (is_mapped)
      release_pages(static_cast<std::byte*>(stored.data_ptr()), static_cast<int64_t>(stored.nbytes()));
  }
  return copy;
}

// Keeps the weights of the running block in memory, and leaves those of the others in the file.
class BlockStream {
 public:
  explicit BlockStream(Model& model) : model_(model), shown_("blocks", model.num_blocks()) {
    model.for_each_module([&](const std::string&, Module& module) { modules_[&module] = &module; });
    model.for_each_parameter([](const std::string&, Parameter& parameter) {
      if (parameter.shape.size() < 2) parameter.value = wide_copy(parameter.value);  // norms and biases
    });
    model_.around_block = [this](const Module& block, BlockPass) {
      shown_.add();
      enter(block);
      return nullptr;
    };
  }
  ~BlockStream() { model_.around_block = nullptr; }
  BlockStream(const BlockStream&) = delete;
  BlockStream& operator=(const BlockStream&) = delete;

  void leave() {
    for (auto& [parameter, stored] : held_) parameter->value = stored;
    held_.clear();
  }

 private:
  void enter(const Module& block) {
    leave();
    modules_.at(&block)->for_each_parameter([&](const std::string&, Parameter& parameter) {
      held_.emplace_back(&parameter, parameter.value);
      parameter.value = wide_copy(parameter.value);
    });
  }

  Model& model_;
  Progress shown_;
  std::map<const Module*, Module*> modules_;
  std::vector<std::pair<Parameter*, Weight>> held_;
};

// Ids spread over the whole vocabulary: no tokenizer is needed, and no row is preferred.
std::vector<int32_t> prompt_ids(int64_t vocab_size, int64_t first) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < kPromptTokens; i++)
    ids.push_back(static_cast<int32_t>((first + i * 7919) % vocab_size));
  return ids;
}

MicroBatch fixed_prompt(const Model& model) {
  EffectiveBatch batch;
  Sample sample{prompt_ids(model.vocab_size(), 1), {}};
  sample.labels = model.encoder_decoder() ? prompt_ids(model.vocab_size(), 3) : sample.input_ids;
  batch.samples.push_back(std::move(sample));
  batch.supervised_tokens = supervised_tokens(batch.samples[0], model.encoder_decoder());
  batch.tokens = token_count(batch.samples[0], model.encoder_decoder());
  return collate(batch, {0}, model.collate_options(), at::kCPU);
}

}  // namespace

at::Tensor streamed_logits(const LogitsSource& source) {
  const at::NoGradGuard no_grad;
  LoadOptions options;
  options.dtype = at::ScalarType::Undefined;
  options.quantise = source.quantise;
  const std::unique_ptr<Model> model = source.adapter.empty()
                                           ? load_model(source.model, options)
                                           : load_with_adapter(source.model, source.adapter, options);
  ::malloc_trim(0);  // what converting the weights has left free in the heap; a block in fp32 is large enough
  BlockStream stream(*model);
  const at::Tensor states = model->supervised_states(fixed_prompt(*model), ForwardContext{});
  stream.leave();
  const Weight weight = model->head().weight(states.scalar_type());
  return model->head().logits(states, weight.is_mapped() ? wide_copy(weight) : weight.tensor());
}

namespace {

// The relative error of logits that is explained by rounding the weights once. The error of each product is
// about as large as that of a weight, and errors in a residual network add up as if they were independent.
// Sums in another order differ by less than 1e-5.
double bound_for(Dtype dtype, int64_t blocks) {
  return std::max(1e-5, 4 * unit_of(dtype) * std::sqrt(static_cast<double>(blocks) + 1));
}

std::string short_number(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2g", number);
  return text;
}

}  // namespace

double unit_of(Dtype dtype) {
  if (dtype == Dtype::bf16) return std::ldexp(1.0, -8);
  return dtype == Dtype::f16 ? std::ldexp(1.0, -11) : 0;
}

at::Tensor require_finite(at::Tensor logits, const std::filesystem::path& source) {
  if (logits.isfinite().all().item<bool>()) return logits;
  throw of_family(
      ErrorCode::export_check,
      FormatError(concat(source.string(),
                         ": the model's own logits are not finite; its weights are damaged or diverged")));
}

std::string check_logits(const at::Tensor& found, const at::Tensor& expected,
                         const std::filesystem::path& source, const LogitsBound& allowed) {
  const std::string what = concat("reloaded from disk, its logits at ", expected.size(0), " positions ");
  if (found.equal(expected)) return concat(what, "are the model's own, bit for bit");
  const double error = found.sizes() == expected.sizes()
                           ? (found.sub(expected).norm() / expected.norm()).item<double>()
                           : INFINITY;
  const double bound = allowed.exact ? 0 : bound_for(allowed.dtype, allowed.blocks);
  if (!(error <= bound)) {
    throw of_family(ErrorCode::export_check,
                    FormatError(concat("the export was written, but ", what, "differ from those of ",
                                       source.string(), ": max error ", short_number(error), " (limit ",
                                       short_number(bound), "), so it was removed; please report this")));
  }
  return concat(what, "are the model's: max error ", short_number(error), " (limit ", short_number(bound),
                "): OK");
}

std::string difference_text(const at::Tensor& found, const at::Tensor& expected, const std::string& whom) {
  const at::Tensor difference = found.sub(expected).abs();
  return concat("at ", expected.size(0), " positions, the logits differ from those of ", whom, " by at most ",
                short_number(difference.max().item<double>()), ", on average by ",
                short_number(difference.mean().item<double>()), " (they reach ",
                short_number(expected.abs().max().item<double>()), ")");
}

std::string answers_text(const at::Tensor& found, const at::Tensor& expected) {
  const auto changed = found.argmax(-1).ne(expected.argmax(-1)).sum().item<int64_t>();
  return concat("rounding changes the most likely token at ", changed, " of ", expected.size(0),
                " positions; --dtype fp32 rounds nothing, --dtype fp16 8 times less than bf16");
}

}  // namespace trainer
