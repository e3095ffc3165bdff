// Some ranks connected by Gloo, as LibTorch contains it (torch.distributed's backend for CPUs).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

namespace c10d {
class Store;
}

namespace trainer {

class GlooGroup {
 public:
  // `address`: of this machine, as others reach it, or "" if GLOO_SOCKET_IFNAME names the interface. Every
  // call fails after `timeout`, and exchange() also when `given_up` becomes true (nullptr: it never does).
  GlooGroup(const c10::intrusive_ptr<c10d::Store>& store, const std::string& name, int64_t rank,
            int64_t count, const std::string& address, std::chrono::milliseconds timeout,
            const std::atomic<bool>* given_up);
  ~GlooGroup();

  // They throw LostRank.
  std::vector<std::string> exchange(const std::string& note) const;
  void add_up(const at::Tensor& tensor) const;
  void add_up_at(const at::Tensor& tensor, int64_t owner) const;
  void copy_from(int64_t owner, const at::Tensor& tensor) const;

 private:
  struct Gloo;
  std::unique_ptr<Gloo> gloo_;
  int64_t rank_, count_;
};

}  // namespace trainer
