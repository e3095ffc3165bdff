// Counts what would be launched on a GPU: LibTorch's operators that compute, and kernels of ours on an
// emulated GPU (support/emulated_gpu.h).
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <ATen/record_function.h>

#include "support/emulated_gpu.h"

namespace trainer::test {

// While it lives. Operators that only allocate, or give other names to the same memory, launch nothing, nor
// do those that are made of others. All others count as one.
class CountLaunches {
 public:
  CountLaunches()
      : ours_(emulated::launches()),
        handle_(at::addThreadLocalCallback(
            at::RecordFunctionCallback(
                [](const at::RecordFunction& call) -> std::unique_ptr<at::ObserverContext> {
                  if (counts(call) && depth()++ == 0) theirs().emplace_back(call.name());
                  return nullptr;
                },
                [](const at::RecordFunction& call, at::ObserverContext*) { depth() -= counts(call) ? 1 : 0; })
                .scopes({at::RecordScope::FUNCTION}))) {
    depth() = 0;
    theirs().clear();
  }
  ~CountLaunches() { at::removeCallback(handle_); }
  CountLaunches(const CountLaunches&) = delete;
  CountLaunches& operator=(const CountLaunches&) = delete;

  int64_t of_ours() const { return emulated::launches() - ours_; }
  // The operators in their order.
  const std::vector<std::string>& of_libtorch() const { return theirs(); }

 private:
  static bool counts(const at::RecordFunction& call) {
    const std::string name = call.name();
    return name.starts_with("aten::") && !launches_nothing().contains(name.substr(6));
  }
  // Of operators that count, in each other: what the CPU's version of one calls is not launched on a GPU.
  static int& depth() {
    static int value = 0;
    return value;
  }
  static std::vector<std::string>& theirs() {
    static std::vector<std::string> names;
    return names;
  }
  static const std::set<std::string>& launches_nothing() {
    static const std::set<std::string> names{
        "empty",          "empty_like",  "empty_strided", "new_empty",  "narrow",       "slice",
        "select",         "t",           "transpose",     "view",       "_unsafe_view", "reshape",
        "_reshape_alias", "unflatten",   "flatten",       "expand",     "permute",      "unsqueeze",
        "squeeze",        "detach",      "alias",         "as_strided", "to",           "_to_copy",
        "contiguous",     "clone",       "zeros",         "zero_",      "result_type",  "view_as",
        "resolve_conj",   "resolve_neg", "unbind",        "split",      "resize_"};
    return names;
  }

  int64_t ours_;
  at::CallbackHandle handle_;
};

}  // namespace trainer::test
