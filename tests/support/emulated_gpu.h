// Runs the kernels of src/*/kernels on the CPU. They are compiled as C++; each thread of a block is a fiber,
// and blocks run one after another. A warp runs as far as it can without the others, so that a read without
// the barrier it needs finds values that are not written yet, or are overwritten. In every other block, warps
// and threads run in reverse order. A file that includes this also includes the kernels, in a namespace that
// defines what they leave open.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <setjmp.h>
#include <stdexcept>
#include <string>
#include <ucontext.h>
#include <utility>
#include <vector>

#include "device/kernels.h"

struct Dim {
  unsigned x = 1, y = 1, z = 1;
};
inline Dim threadIdx, blockIdx, blockDim, gridDim;

namespace trainer::emulated {

// The threads of one block. They stay where they ended for the next block.
class Block {
 public:
  explicit Block(unsigned threads) : threads_(threads) {
    for (Thread& thread : threads_) thread.stack = std::make_unique_for_overwrite<char[]>(kStack);
  }

  // Runs `body` as every thread of one block. If it throws, the block cannot be used again.
  void run(const std::function<void()>& body, bool reversed) {
    body_ = &body;
    current_block() = this;
    for (Thread& thread : threads_) thread.state = State::ready;
    const size_t warps = (threads_.size() + 31) / 32;
    while (!all_done()) {
      bool moved = false;
      for (size_t n = 0; n < warps; n++) moved = run_warp(reversed ? warps - 1 - n : n, reversed) || moved;
      if (all_at(0, threads_.size(), State::at_block_barrier)) {
        go_on(0, threads_.size());
        moved = true;
      }
      if (!moved) throw std::logic_error("threads of a block wait at different barriers");
    }
  }

  void wait_for_block() { wait(State::at_block_barrier); }

  // Calls read(of), where of(lane) is what the thread of the same warp at `lane` gives to its call.
  template <class T, class Read>
  void exchange(const T& mine, const Read& read) {
    threads_[running_].given = &mine;
    wait(State::at_warp_barrier);
    const Thread* warp = &threads_[running_ / 32 * 32];
    read([warp](unsigned lane) -> const T& { return *static_cast<const T*>(warp[lane].given); });
    wait(State::at_warp_barrier);
  }

  static Block*& current_block() {
    static Block* block = nullptr;
    return block;
  }

 private:
  static constexpr size_t kStack = 64 << 10;
  enum class State { ready, at_warp_barrier, at_block_barrier, done };

  // Where the code of a thread, or of the scheduler, goes on.
  class Place {
   public:
    // Goes on at `to`, until somebody goes on here. _setjmp() asks nothing of the system, as swapcontext()
    // does for the mask of signals.
    [[gnu::noinline]] void leave_for(Place& to) {
#ifdef __SANITIZE_ADDRESS__  // which knows swapcontext()
      swapcontext(&context_, &to.context_);
#else
      if (_setjmp(jump_) != 0) return;
      if (std::exchange(to.is_new_, false)) setcontext(&to.context_);
      _longjmp(to.jump_, 1);
#endif
    }
    // Goes on in `function` on this stack, when somebody leaves for here. A function of its own, as
    // getcontext() returns twice.
    [[gnu::noinline]] void begin_in(void (*function)(), char* stack) {
      getcontext(&context_);
      context_.uc_stack.ss_sp = stack;
      context_.uc_stack.ss_size = kStack;
      makecontext(&context_, function, 0);
      is_new_ = true;
    }

   private:
    ucontext_t context_{};
    jmp_buf jump_{};
    bool is_new_ = false;
  };

  struct Thread {
    Place place;
    std::unique_ptr<char[]> stack;
    State state = State::done;
    bool has_begun = false;
    const void* given = nullptr;
  };

  static void work() {
    for (;;) {
      Block* block = current_block();
      (*block->body_)();
      block->wait(State::done);
    }
  }

  void wait(State state) {
    Thread& self = threads_[running_];
    self.state = state;
    self.place.leave_for(scheduler_);
  }

  void resume(Thread& thread) {
    if (!std::exchange(thread.has_begun, true)) thread.place.begin_in(&Block::work, thread.stack.get());
    scheduler_.leave_for(thread.place);
  }

  bool all_at(size_t first, size_t last, State state) const {
    return std::all_of(threads_.begin() + static_cast<std::ptrdiff_t>(first),
                       threads_.begin() + static_cast<std::ptrdiff_t>(last),
                       [&](const Thread& thread) { return thread.state == state; });
  }
  bool all_done() const { return all_at(0, threads_.size(), State::done); }

  // As far as it comes without the other warps.
  bool run_warp(size_t warp, bool reversed) {
    const size_t first = warp * 32, last = std::min(first + 32, threads_.size());
    bool moved = false;
    for (bool again = true; again; moved = moved || again) {
      again = false;
      for (size_t n = first; n < last; n++) {
        running_ = reversed ? last - 1 - (n - first) : n;
        if (threads_[running_].state != State::ready) continue;
        threadIdx.x = static_cast<unsigned>(running_);
        again = true;
        resume(threads_[running_]);
      }
      if (all_at(first, last, State::at_warp_barrier)) {
        go_on(first, last);
        again = true;
      }
    }
    return moved;
  }

  void go_on(size_t first, size_t last) {
    for (size_t i = first; i < last; i++) threads_[i].state = State::ready;
  }

  std::vector<Thread> threads_;
  Place scheduler_;
  const std::function<void()>* body_ = nullptr;
  size_t running_ = 0;
};

// The block with so many threads, which all launches use.
class UsedBlock {
 public:
  explicit UsedBlock(unsigned threads) : threads_(threads) {
    std::unique_ptr<Block>& block = all()[threads];
    if (block == nullptr) block = std::make_unique<Block>(threads);
  }
  ~UsedBlock() {
    if (!done_) all().erase(threads_);
  }
  UsedBlock(const UsedBlock&) = delete;
  UsedBlock& operator=(const UsedBlock&) = delete;
  Block& block() const { return *all().at(threads_); }
  void done() { done_ = true; }

 private:
  static std::map<unsigned, std::unique_ptr<Block>>& all() {
    static std::map<unsigned, std::unique_ptr<Block>> blocks;
    return blocks;
  }
  unsigned threads_;
  bool done_ = false;
};

using Call = void (*)(std::span<const KernelArgument>);

// A kernel as a Call: checks that what is passed is what the kernel takes.
template <auto kernel>
struct Callable;
template <class... Parameters, void (*kernel)(Parameters...)>
struct Callable<kernel> {
  static void call(std::span<const KernelArgument> arguments) {
    if (arguments.size() != sizeof...(Parameters)) throw std::logic_error("another number of arguments");
    [&]<size_t... i>(std::index_sequence<i...>) {
      const bool fit =
          ((arguments[i].size == sizeof(Parameters) && arguments[i].kind == Kernels::kind_of<Parameters>()) &&
           ...);
      if (!fit) throw std::logic_error("an argument of another type");
      kernel(*static_cast<Parameters*>(arguments[i].value)...);
    }
    (std::index_sequence_for<Parameters...>());
  }
};

// Aligned as new gives it: to 16 bytes.
inline std::vector<std::byte>& shared_of_launch() {
  static std::vector<std::byte> bytes;
  return bytes;
}

// A file in one specialisation.
class File : public Kernels {
 public:
  void add(const std::string& function, Call call) { functions_[function] = call; }

  std::vector<std::string> functions() const {
    std::vector<std::string> names;
    for (const auto& [name, call] : functions_) names.push_back(name);
    return names;
  }

 protected:
  void launch(const char* function, const KernelGrid& grid,
              std::span<const KernelArgument> arguments) const override {
    const Call call = functions_.at(function);
    if (grid.x >= (int64_t{1} << 31) || grid.y > 65535 || grid.threads > 1024 || grid.shared > kMostShared)
      throw std::logic_error("no GPU has such a grid");
    shared_of_launch().assign(static_cast<size_t>(grid.shared), std::byte{0xff});  // NaN
    blockDim.x = static_cast<unsigned>(grid.threads);
    gridDim = {static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y), 1};
    UsedBlock used(blockDim.x);
    const std::function<void()> body = [&] { call(arguments); };
    for (blockIdx.y = 0; blockIdx.y < gridDim.y; blockIdx.y++) {
      for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++) used.block().run(body, blockIdx.x % 2 == 1);
    }
    used.done();
  }

 private:
  std::map<std::string, Call> functions_;
};

// All files in all specialisations, by "rms_norm.cu Element=float kWidth=1". While it lives find_kernels()
// gives them for CPU tensors.
class Gpu {
 public:
  Gpu() {
    set_kernels_for_cpu([this](const KernelFile& file, const std::string& definitions) {
      used_.push_back(std::string(file.name) + " " + definitions);
      return &files_.at(used_.back());
    });
  }
  ~Gpu() { set_kernels_for_cpu({}); }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  void add(const std::string& file, const std::string& definitions, const std::string& function, Call call) {
    files_[file + " " + definitions].add(function, call);
  }
  const std::map<std::string, File>& files() const { return files_; }
  // What was asked for since the last call.
  std::vector<std::string> take_used() { return std::exchange(used_, {}); }

 private:
  std::map<std::string, File> files_;
  std::vector<std::string> used_;
};

}  // namespace trainer::emulated

// CUDA's words.
#define KERNEL inline void
#define DEVICE inline
#define __shared__ static
inline void __syncthreads() { trainer::emulated::Block::current_block()->wait_for_block(); }
inline float __shfl_xor_sync(unsigned /*mask*/, float value, int distance) {
  const unsigned lane = (threadIdx.x % 32) ^ static_cast<unsigned>(distance);
  float got = 0.0f;
  trainer::emulated::Block::current_block()->exchange(value, [&](const auto& of) { got = of(lane); });
  return got;
}
template <class S>
S& dynamic_shared() {
  std::vector<std::byte>& bytes = trainer::emulated::shared_of_launch();
  if (sizeof(S) > bytes.size())
    throw std::logic_error("a kernel has more shared memory than its launch asked for");
  return *reinterpret_cast<S*>(bytes.data());
}
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }

#include "device/prelude.cuh"

// The instructions of device/mma.cuh, as PTX's manual describes them. Sums of products are in fp32.
namespace trainer::emulated {

inline unsigned pair_of_bits(unsigned low, unsigned high) { return low | high << 16; }

template <bool transposed>
void ldmatrix(unsigned (&out)[4], const void* row) {
  const unsigned lane = threadIdx.x % 32, first = lane % 4 * 2;
  Block::current_block()->exchange(static_cast<const bf16*>(row), [&](const auto& of) {
    for (unsigned i = 0; i < 4; i++) {
      const auto at = [&](unsigned y, unsigned x) -> unsigned { return of(8 * i + y)[x].bits; };
      out[i] = transposed ? pair_of_bits(at(first, lane / 4), at(first + 1, lane / 4))
                          : pair_of_bits(at(lane / 4, first), at(lane / 4, first + 1));
    }
  });
}

struct MmaOperands {
  unsigned a[4], b[2];
};

inline void mma(float (&c)[4], const MmaOperands& mine) {
  const unsigned lane = threadIdx.x % 32;
  const auto half = [](unsigned pair, unsigned k) {
    return wide(bf16{static_cast<unsigned short>(pair >> k % 2 * 16)});
  };
  Block::current_block()->exchange(mine, [&](const auto& of) {
    for (unsigned i = 0; i < 4; i++) {
      const unsigned row = lane / 4 + i / 2 * 8, col = lane % 4 * 2 + i % 2;
      float sum = 0.0f;
      for (unsigned k = 0; k < 16; k++) {
        const unsigned a = of(row % 8 * 4 + k % 8 / 2).a[row / 8 + k / 8 * 2];
        sum += half(a, k) * half(of(col * 4 + k % 8 / 2).b[k / 8], k);
      }
      c[i] += sum;
    }
  });
}

}  // namespace trainer::emulated

inline void ldmatrix_x4(unsigned (&out)[4], const void* row) { trainer::emulated::ldmatrix<false>(out, row); }
inline void ldmatrix_x4_trans(unsigned (&out)[4], const void* row) {
  trainer::emulated::ldmatrix<true>(out, row);
}
inline void mma_m16n8k16(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  trainer::emulated::mma(c, {{a[0], a[1], a[2], a[3]}, {b0, b1}});
}

#include "device/mma.cuh"
