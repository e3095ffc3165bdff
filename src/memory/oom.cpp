#include "trainer/memory/oom.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <new>
#include <regex>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/memory/device_memory.h"
#include "trainer/memory/host_allocator.h"

#include "base/ending.h"
#include "base/text.h"

namespace trainer {
namespace {

// cudaError_t
constexpr int32_t kCudaOutOfMemory = 2;
// Uncorrectable ECC error, unavailable hardware, illegal address, launch timeout, device assert, hardware
// stack error, illegal instruction, misaligned address, invalid address space, invalid pc, launch failure.
constexpr std::array<int32_t, 11> kCudaFaults{214, 46, 700, 702, 710, 714, 715, 716, 717, 718, 719};

// Libraries report a failed allocation in their own words.
constexpr std::array kLibraryMessages{"CUBLAS_STATUS_ALLOC_FAILED",
                                      "CUSPARSE_STATUS_ALLOC_FAILED",
                                      "CUSOLVER_STATUS_ALLOC_FAILED",
                                      "CUDNN_STATUS_ALLOC_FAILED",
                                      "DefaultCPUAllocator: can't allocate memory",
                                      "DefaultCPUAllocator: not enough memory",
                                      "out of memory"};

// These can be a failed allocation within a library, of a handle or a workspace, and anything else as well.
constexpr std::array kAmbiguousMessages{"CUBLAS_STATUS_NOT_INITIALIZED", "CUBLAS_STATUS_INTERNAL_ERROR",
                                        "CUDNN_STATUS_NOT_INITIALIZED", "CUDNN_STATUS_INTERNAL_ERROR",
                                        "cuDNN Frontend error"};
constexpr int64_t kLittle = 512'000'000;  // free on a GPU: what the libraries may want at once

// Returns the bytes that are free on the current GPU; nullopt if there is none or it does not answer.
std::optional<int64_t> free_on_gpu() {
  if (!c10::impl::hasDeviceGuardImpl(c10::kCUDA)) return std::nullopt;
  try {
    const c10::Device gpu = c10::impl::VirtualGuardImpl(c10::kCUDA).getDevice();
    return static_cast<int64_t>(c10::getDeviceAllocator(c10::kCUDA)->getMemoryInfo(gpu.index()).first);
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

template <class Parts>
bool has_any(const std::string& message, const Parts& parts) {
  return std::ranges::any_of(parts,
                             [&](const char* part) { return message.find(part) != std::string::npos; });
}

std::string message_of(const std::exception& error) {
  const auto* torch = dynamic_cast<const c10::Error*>(&error);
  return torch != nullptr ? torch->what_without_backtrace() : error.what();
}

// Returns the bytes that `pattern` finds in a message of the CUDA allocator ("Tried to allocate 20.00 MiB"),
// or -1.
int64_t bytes_in(const std::string& message, const std::string& pattern) {
  std::smatch match;
  if (!std::regex_search(message, match, std::regex(pattern))) return -1;
  const std::string unit = match[2];
  const double factor = unit == "GiB" ? 1 << 30 : unit == "MiB" ? 1 << 20 : unit == "KiB" ? 1 << 10 : 1;
  return std::llround(std::stod(match[1]) * factor);
}

// LibTorch's own message has places in its sources, and settings that are others here.
OutOfMemory describe(const std::exception& error) {
  const std::string message = message_of(error);
  OutOfMemory oom;
  if (message.starts_with("out of memory on the CPU")) {
    const HostShortage shortage = last_host_shortage();
    return {first_line(message), shortage.asked, shortage.free, shortage.allocated};
  }
  if (dynamic_cast<const Error*>(&error) != nullptr) return {message};
  const bool on_host = dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
                       message.find("DefaultCPUAllocator") != std::string::npos;
  oom.message = on_host ? kOutOfHostMemory : "out of memory on the GPU";
  static const std::string number = "([0-9.]+) (GiB|MiB|KiB|bytes)";
  oom.asked = bytes_in(message, "Tried to allocate " + number);
  oom.free = bytes_in(message, "of which " + number + " is free");
  oom.allocated = bytes_in(message, number + " is allocated by PyTorch");
  if (!on_host && oom.asked >= 0) oom.message += ": " + oom.numbers();
  return oom;
}

// Runs a backward pass of one element: before a new pass, the engine discards what a failed one left in its
// queue.
void drain_autograd(c10::Device device) {
  at::AutoGradMode with_grad(true);
  const at::Tensor leaf = at::zeros({1}, device).set_requires_grad(true);
  torch::autograd::backward({leaf * 1}, {at::ones({1}, device)});
}

}  // namespace

bool is_oom(const std::exception& error) { return is_oom(error, free_on_gpu); }

bool is_oom(const std::exception& error, const FreeGpuMemory& free_gpu_memory) {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return true;
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return true;
  if (const auto* device = dynamic_cast<const c10::AcceleratorError*>(&error))
    return device->get_error_code() == kCudaOutOfMemory;
  if (dynamic_cast<const c10::Error*>(&error) == nullptr) return false;
  const std::string message = message_of(error);
  if (has_any(message, kLibraryMessages)) return true;
  return has_any(message, kAmbiguousMessages) &&
         free_gpu_memory().value_or(std::numeric_limits<int64_t>::max()) < kLittle;
}

bool is_device_fault(const std::exception& error) {
  const auto* device = dynamic_cast<const c10::AcceleratorError*>(&error);
  return device != nullptr && std::ranges::find(kCudaFaults, device->get_error_code()) != kCudaFaults.end();
}

std::string OutOfMemory::numbers() const {
  std::vector<std::string> parts;
  if (asked >= 0) parts.push_back(bytes_string(asked) + " asked for");
  if (free >= 0) parts.push_back(bytes_string(free) + " free");
  if (allocated >= 0) parts.push_back(bytes_string(allocated) + " allocated");
  return parts.empty() ? message : join(parts);
}

std::string oom_message(const std::exception& error) { return describe(error).message; }

std::optional<OutOfMemory> catch_oom(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    if (!is_oom(error)) throw;
    return describe(error);
  }
  return std::nullopt;
}

void free_after_oom(c10::Device device) {
  // Even its few bytes may be too much: then the first attempt makes room for the second.
  constexpr int kTries = 3;
  for (int i = 0; i < kTries && catch_oom([&] { drain_autograd(device); }); i++) {
  }
  empty_cache(device);
}

OomLoop::OomLoop(c10::Device device, std::function<void()> clean_up, Recover recover)
    : device_(device), clean_up_(std::move(clean_up)), recover_(std::move(recover)) {}

bool OomLoop::next() {
  switch (std::exchange(state_, State::done)) {
    case State::not_begun:
      return true;
    case State::done:
      return false;
    case State::failed:
      if (clean_up_) clean_up_();
      free_after_oom(device_);
      break;
    case State::gave_up:
      break;
  }
  recover_(oom_);
  return true;
}

void OomLoop::failed(const std::exception& error) {
  if (!is_oom(error)) throw;
  oom_ = describe(error);
  state_ = State::failed;
}

void OomLoop::gave_up(const OutOfMemoryError& error) {
  oom_ = {error.what()};
  state_ = State::gave_up;
}

void give_up(const OutOfMemory& oom, int64_t retries) {
  throw of_family(ErrorCode::oom_step, OutOfMemoryError(concat("out of memory, also after ", retries,
                                                               " retries: ", oom.numbers())));
}

OomLoop same_again(const RetryOptions& options) {
  return {options.device, options.clean_up, [options, retries = int64_t{0}](const OutOfMemory& oom) mutable {
            if (retries++ >= options.max_retries) give_up(oom, options.max_retries);
            if (options.on_retry) options.on_retry(oom, 0);
          }};
}

int64_t adaptive_batch(const std::function<void(int64_t size)>& work, int64_t initial,
                       const RetryOptions& options) {
  OomHandler handler(initial, options);
  handler.run(work);
  return handler.size();
}

OomHandler::OomHandler(int64_t initial, RetryOptions options, int64_t minimum, int64_t grow_after)
    : initial_(initial), minimum_(minimum), grow_after_(grow_after), options_(std::move(options)) {}

int64_t OomHandler::size() const {
  return std::max(minimum_, budget_.halvings < 62 ? initial_ >> budget_.halvings : 0);
}

void OomHandler::run(const std::function<void(int64_t size)>& work) {
  int64_t retries = 0;
  OomLoop attempts(options_.device, options_.clean_up, [&](const OutOfMemory& oom) {
    if (retries >= options_.max_retries || size() == minimum_) give_up(oom, retries);
    retries++;
    budget_.shrink();
    if (options_.on_retry) options_.on_retry(oom, size());
  });
  while (attempts.next()) {
    try {
      work(size());
    } catch (const std::exception& error) {
      attempts.failed(error);
    }
  }
  if (retries == 0) budget_.succeeded(grow_after_);
}

}  // namespace trainer
