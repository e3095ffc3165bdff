// In place of a CUDA graph: work that runs again, with the host's numbers of the recording.
#pragma once

#include <algorithm>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "memory/gpu_graph.h"
#include "support/call_log.h"

namespace trainer {

// A start fails a test where its calls are not those of the recording.
class RepeatedOnTheCpu : public GpuGraph {
 public:
  static RecordedWork record(const GpuWork& work) {
    auto graph = std::make_unique<RepeatedOnTheCpu>();
    graph->work_ = work;
    RecordedWork recorded;
    recorded.now = logged(work, graph->calls_);
    if (std::exchange(lacks_memory, false)) throw std::bad_alloc();
    graph->later_ = recorded.later = recorded.now;
    recorded.graph = std::move(graph);
    return recorded;
  }
  void start() const override {
    starts++;
    if (is_wrong) return;
    const Recording recording;
    std::vector<std::string> calls;
    const std::vector<at::Tensor> results = logged(work_, calls);
    for (size_t i = 0; i < results.size(); i++)
      if (results[i].defined() && !results[i].is_same(later_[i])) later_[i].copy_(results[i]);
    if (off != 0) later_[0].mul_(1 + off);
    const auto [ours, recorded] = std::ranges::mismatch(calls, calls_);
    EXPECT_EQ(ours == calls.end() ? "" : *ours, recorded == calls_.end() ? "" : *recorded);
  }
  static inline int64_t starts = 0;
  static inline bool lacks_memory = false;  // the next recording runs out of it
  static inline double off = 0;             // by how much the results of starts are larger
  static inline bool is_wrong = false;      // starts do nothing, so what they should change stays as it was

 private:
  static std::vector<at::Tensor> logged(const GpuWork& work, std::vector<std::string>& calls) {
    const CallLog log;
    std::vector<at::Tensor> results = work();
    calls = log.calls();
    return results;
  }

  GpuWork work_;
  std::vector<at::Tensor> later_;
  std::vector<std::string> calls_;
};

// While it lives, work on the CPU is recorded so.
struct RepeatingOnTheCpu {
  explicit RepeatingOnTheCpu(bool wrong = false) {
    RepeatedOnTheCpu::starts = 0;
    RepeatedOnTheCpu::is_wrong = wrong;
    RepeatedOnTheCpu::off = 0;
    set_recorder_for_cpu(RepeatedOnTheCpu::record);
  }
  ~RepeatingOnTheCpu() { set_recorder_for_cpu({}); }
  RepeatingOnTheCpu(const RepeatingOnTheCpu&) = delete;
  RepeatingOnTheCpu& operator=(const RepeatingOnTheCpu&) = delete;
};

}  // namespace trainer
