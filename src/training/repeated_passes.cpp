#include "training/repeated_passes.h"

#include <iterator>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "trainer/base/log.h"
#include "trainer/base/strings.h"

namespace trainer {
namespace {

constexpr int64_t kPassesBefore = 2;  // a recording costs as much as some passes
constexpr size_t kMostGraphs = 16, kMostKnown = 4096;

// Calls body(tensor) for those that exist.
template <class Micro, class Body>
void for_each_tensor(Micro& micro, const Body& body) {
  const auto some = [&](auto&... tensors) { (..., (tensors.defined() ? body(tensors) : void())); };
  const auto rows = [&](auto& row) { some(row.positions, row.dropout_keys, row.starts); };
  some(micro.input_ids, micro.input_lengths, micro.decoder_input_ids, micro.supervised_rows,
       micro.supervised_labels, micro.supervised_weights, micro.teacher_ids, micro.teacher_log_probs,
       micro.dropout_keys);
  if (micro.packed) rows(*micro.packed);
  if (!micro.packed_target) return;
  rows(micro.packed_target->row);
  for (auto* groups :
       {&micro.packed_target->encoder, &micro.packed_target->decoder, &micro.packed_target->cross}) {
    for (auto& group : *groups)
      some(group.queries.rows, group.queries.places, group.keys.rows, group.keys.places, group.key_lengths,
           group.dropout_keys);
  }
}

// Adds what the host knows of a micro-batch. The numbers of samples and lengths of packed groups follow from
// the lengths of the samples and the sizes of tensors.
void add_form(RepeatedPasses::Form& form, const MicroBatch& micro) {
  form.push_back(micro.tokens);
  form.insert(form.end(), micro.lengths.begin(), micro.lengths.end());
  for_each_tensor(micro, [&](const at::Tensor& tensor) {
    form.push_back(-tensor.dim());
    form.insert(form.end(), tensor.sizes().begin(), tensor.sizes().end());
  });
}

std::vector<at::Tensor> tensors_of(const LossSum& out) {
  return {out.loss.detach(), out.correct, out.z_loss, out.divergence, out.log_probabilities};
}

LossSum taken_from(std::vector<at::Tensor>& results) {
  const LossSum out{results[0], results[1], results[2], results[3], results[4]};
  results.erase(results.begin(), results.begin() + 5);
  return out;
}

}  // namespace

RepeatedPasses::RepeatedPasses(Gradients& gradients, at::Device device)
    : gradients_(gradients), device_(device), pool_(new_graph_pool()) {}

void RepeatedPasses::forget() {
  known_.clear();
  graphs_ = 0;
}

void RepeatedPasses::stop() {
  if (graphs_ > 0) log::info("the passes of steps are no longer started as CUDA graphs, to save memory");
  stopped_ |= graphs_ > 0;
  forget();
}

LossSum RepeatedPasses::run(const MicroBatch& micro, const at::Tensor& seed, Form form, const Pass& pass) {
  if (stopped_) return pass(micro, seed);
  add_form(form, micro);
  for (const at::Tensor& sum : gradients_.sums())
    form.push_back(sum.defined() ? reinterpret_cast<int64_t>(sum.const_data_ptr()) : 0);
  if (known_.size() >= kMostKnown) forget();
  Known& known = known_[std::move(form)];
  if (known.graph == nullptr) {
    const bool often = known.passes++ >= kPassesBefore;
    return often && graphs_ < kMostGraphs ? record(known, micro, seed, pass) : pass(micro, seed);
  }
  std::vector<at::Tensor> given{seed};
  for_each_tensor(micro, [&](const at::Tensor& tensor) { given.push_back(tensor); });
  auto next = given.cbegin();
  known.seed.copy_(*next++);
  for_each_tensor(known.micro, [&](const at::Tensor& tensor) { tensor.copy_(*next++); });
  known.graph->start();
  gradients_.set(known.sums);
  return known.out;
}

// Where sums exist, the recorded pass adds to them. Others are new, and lie in the graph's memory.
LossSum RepeatedPasses::record(Known& known, const MicroBatch& micro, const at::Tensor& seed,
                               const Pass& pass) {
  known.micro = micro;
  for_each_tensor(known.micro, [](at::Tensor& tensor) { tensor = tensor.clone(); });
  known.seed = seed.clone();
  const auto work = [this, pass, before = gradients_.sums(), own = known.micro, own_seed = known.seed] {
    gradients_.set(before);
    std::vector<at::Tensor> results = tensors_of(pass(own, own_seed));
    std::vector<at::Tensor> sums = gradients_.sums();
    std::ranges::move(sums, std::back_inserter(results));
    return results;
  };
  RecordedWork recorded = record_work(device_, work, pool_);
  const LossSum out = taken_from(recorded.now);
  gradients_.set(recorded.now);
  if (recorded.graph == nullptr) {
    log::info(concat("the passes of steps are not recorded as CUDA graphs: ", recorded.problem));
    stopped_ = true;
    return out;
  }
  known.out = taken_from(recorded.later);
  known.sums = std::move(recorded.later);
  known.graph = std::move(recorded.graph);
  graphs_++;
  return out;
}

}  // namespace trainer
