#include "training/repeated_passes.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <ATen/ATen.h>

#include "trainer/base/log.h"
#include "trainer/base/strings.h"

namespace trainer {
namespace {

constexpr int64_t kPassesBefore = 2;  // a recording costs as much as some passes
constexpr size_t kMostGraphs = 32, kMostKnown = 4096;

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

// Adds what the host knows of a micro-batch.
void add_form(RepeatedPasses::Form& form, const MicroBatch& micro) {
  form.push_back(micro.longest);
  form.insert(form.end(), micro.lengths.begin(), micro.lengths.end());
  for_each_tensor(micro, [&](const at::Tensor& tensor) {
    form.push_back(-tensor.dim());
    form.insert(form.end(), tensor.sizes().begin(), tensor.sizes().end());
  });
  if (!micro.packed_target) return;
  const PackedTarget& target = *micro.packed_target;
  for (const auto* groups : {&target.encoder, &target.decoder, &target.cross}) {
    for (const AttentionGroup& group : *groups)
      form.insert(form.end(), {group.samples, group.queries.length, group.keys.length});
  }
}

std::vector<at::Tensor> defined_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> defined;
  std::ranges::copy_if(tensors, std::back_inserter(defined),
                       [](const at::Tensor& tensor) { return tensor.defined(); });
  return defined;
}

std::vector<at::Tensor> tensors_of(const LossSum& out) {
  const auto plain = [](const at::Tensor& x) { return x.defined() ? x.detach() : x; };
  return {plain(out.loss), plain(out.correct), plain(out.z_loss), plain(out.divergence),
          plain(out.log_probabilities)};
}

LossSum loss_of(const std::vector<at::Tensor>& results) {
  return {results[0], results[1], results[2], results[3], results[4]};
}

}  // namespace

RepeatedPasses::RepeatedPasses(Gradients& gradients, at::Device device, bool ordered)
    : gradients_(gradients), device_(device), pool_(new_graph_pool()), ordered_(ordered) {}

void RepeatedPasses::begin() {
  begins_ = true;
  if (sums_.empty()) return;
  at::_foreach_zero_(defined_of(sums_));
  gradients_.set(sums_);
}

void RepeatedPasses::forget() {
  known_.clear();
  graphs_ = 0;
  sums_.clear();
  pool_ = new_graph_pool();  // LibTorch does not begin again with one that has no graph left
}

bool RepeatedPasses::stop() {
  const bool any = std::exchange(recording_, false) || graphs_ > 0;
  if (any) log::info("the passes of steps are no longer started as CUDA graphs, to save memory");
  stopped_ |= any;
  forget();
  return any;
}

LossSum RepeatedPasses::run(const MicroBatch& micro, const at::Tensor& seed, Form form, const Pass& pass) {
  if (stopped_) return pass(micro, seed);
  const bool begins = std::exchange(begins_, false);
  add_form(form, micro);
  if (known_.size() >= kMostKnown) std::erase_if(known_, [](const auto& one) { return !one.second.graph; });
  Known& known = known_[std::move(form)];
  if (known.graph != nullptr) {
    std::vector<at::Tensor> given{seed};
    for_each_tensor(micro, [&](const at::Tensor& tensor) { given.push_back(tensor); });
    auto next = given.cbegin();
    known.seed.copy_(*next++);
    for_each_tensor(known.micro, [&](const at::Tensor& tensor) { tensor.copy_(*next++); });
    known.graph->start();
    return known.out;
  }
  const bool often = known.passes++ >= kPassesBefore && graphs_ < kMostGraphs;
  if (often && !sums_.empty() && (begins || checked_)) return record(known, micro, seed, pass);
  const LossSum out = pass(micro, seed);
  if (often) sums_ = gradients_.sums();
  return out;
}

bool RepeatedPasses::adds_to_sums() const {
  return std::ranges::equal(gradients_.sums(), sums_, [](const at::Tensor& a, const at::Tensor& b) {
    return a.defined() == b.defined() && (!a.defined() || a.const_data_ptr() == b.const_data_ptr());
  });
}

LossSum RepeatedPasses::record(Known& known, const MicroBatch& micro, const at::Tensor& seed,
                               const Pass& pass) {
  known.micro = micro;
  for_each_tensor(known.micro, [](at::Tensor& tensor) { tensor = tensor.clone(); });
  known.seed = seed.clone();
  recording_ = true;
  const GpuWork work = [pass, own = known.micro, own_seed = known.seed] {
    return tensors_of(pass(own, own_seed));
  };
  RecordedWork recorded = record_work(device_, work, pool_);
  if (recorded.problem.empty() && !adds_to_sums())
    recorded.problem = "not all passes have gradients of the same weights";
  if (recorded.problem.empty() && !checked_) {
    const std::vector<at::Tensor> sums = defined_of(sums_);
    check_graph(recorded, work, {sums, [&] { at::_foreach_zero_(sums); }}, ordered_);
  }
  checked_ = true;
  recording_ = false;
  const LossSum out = loss_of(recorded.now);
  if (!recorded.problem.empty()) {
    log::info(concat("the passes of steps are not recorded as CUDA graphs: ", recorded.problem));
    stopped_ = true;
    forget();
    return out;
  }
  known.out = loss_of(recorded.later);
  known.graph = std::move(recorded.graph);
  graphs_++;
  return out;
}

}  // namespace trainer
