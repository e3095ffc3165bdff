#include "models/repeated_step.h"

#include <utility>

#include <ATen/ATen.h>

#include "trainer/base/log.h"
#include "trainer/base/strings.h"

namespace trainer {
namespace {

constexpr int64_t kStepsBefore = 4;  // a recording costs about as much as two steps

}  // namespace

at::Tensor RepeatedStep::run(const Form& form, const at::Tensor& tokens, const at::Tensor& table,
                             const Step& step) {
  if (form != form_) {
    graph_.reset();
    logits_ = at::Tensor();
    form_ = form;
    steps_ = 0;
  }
  if (graph_ != nullptr) {
    tokens_.copy_(tokens);
    graph_->start();
    return logits_;
  }
  if (!records_work(tokens.device()) || steps_++ < kStepsBefore) return step(tokens);
  tokens_ = tokens.clone();
  const at::Tensor before = table.clone();
  const GpuWork work = [step, own = tokens_] { return std::vector{step(own)}; };
  RecordedWork recorded = record_work(tokens.device(), work);
  if (recorded.graph != nullptr && !checked_)
    check_graph(recorded, work, {{table}, [&] { table.copy_(before); }});
  checked_ = true;
  if (recorded.graph == nullptr)
    log::info(concat("the steps of answers are not recorded as a CUDA graph: ", recorded.problem));
  graph_ = std::move(recorded.graph);
  if (graph_ != nullptr) logits_ = recorded.later[0];
  return recorded.now[0];
}

}  // namespace trainer
