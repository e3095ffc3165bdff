// What counts as out of memory, and how work continues afterwards, with a model that is not part of trainer.
#include "trainer/memory/oom.h"

#include <new>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "trainer/base/error.h"
#include "trainer/memory/host_allocator.h"
#include "trainer/memory/thrash_watch.h"

#include "base/ending.h"
#include "support/error_message.h"

namespace trainer {
namespace {

c10::AcceleratorError device_error(int32_t code) { return {{"", "", 0}, code, "CUDA error"}; }
c10::Error torch_error(const std::string& message) { return {{"", "", 0}, message}; }

TEST(IsOom, KnowsEveryFormOfALackOfMemory) {
  EXPECT_TRUE(is_oom(c10::OutOfMemoryError({"", "", 0}, "anything")));
  EXPECT_TRUE(is_oom(device_error(2)));
  EXPECT_TRUE(is_oom(std::bad_alloc()));
  for (const char* message :
       {"CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "NCCL error: unhandled cuda error. Last error: Cuda failure 'out of memory'",
        "[enforce fail at alloc_cpu.cpp:121] data. DefaultCPUAllocator: can't allocate memory: you tried to "
        "allocate 4000000000000 bytes."}) {
    EXPECT_TRUE(is_oom(torch_error(message))) << message;
  }
}

TEST(IsOom, TakesNothingElseForOne) {
  EXPECT_FALSE(is_oom(device_error(700)));
  EXPECT_FALSE(is_oom(torch_error("mat1 and mat2 shapes cannot be multiplied")));
  EXPECT_FALSE(is_oom(std::runtime_error("a file of notes on running out of memory is missing")));
  EXPECT_FALSE(is_oom(OutOfMemoryError("given up already")));
  // oneDNN cannot be called again after it; translate_torch_errors() ends the run.
  EXPECT_FALSE(is_oom(std::runtime_error("could not create a primitive")));
}

TEST(IsOom, AnAmbiguousErrorIsOneOnlyOnAFullGpu) {
  const auto free = [](int64_t bytes) { return [bytes] { return std::optional<int64_t>(bytes); }; };
  for (const char* message :
       {"CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        "CUDA error: CUBLAS_STATUS_INTERNAL_ERROR when calling `cublasGemmEx(...)`",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR",
        "cuDNN Frontend error: [cudnn_frontend] Error: No valid execution plans built."}) {
    EXPECT_TRUE(is_oom(torch_error(message), free(100'000'000))) << message;
    EXPECT_FALSE(is_oom(torch_error(message), free(4'000'000'000))) << message;
    EXPECT_FALSE(is_oom(torch_error(message), [] { return std::nullopt; })) << message;
  }
  EXPECT_FALSE(is_oom(torch_error("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED"), free(0)));
  EXPECT_TRUE(is_oom(torch_error("CUBLAS_STATUS_ALLOC_FAILED"), free(4'000'000'000)));
}

TEST(IsDeviceFault, IsAnErrorAfterWhichTheGpuIsLost) {
  for (const int32_t code : {700, 710, 719, 214}) EXPECT_TRUE(is_device_fault(device_error(code))) << code;
  EXPECT_FALSE(is_device_fault(device_error(2)));
  EXPECT_FALSE(is_device_fault(std::runtime_error("700")));
}

TEST(CatchOom, ReadsWhatTheGpusAllocatorSays) {
  const auto oom = catch_oom([] {
    throw c10::OutOfMemoryError({"", "", 0},
                                "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity "
                                "of 23.64 GiB of which 512.00 MiB "
                                "is free. Process 1 has 22.00 GiB memory in use. Of the allocated memory "
                                "20.25 GiB is allocated by PyTorch, "
                                "and 1.00 GiB is reserved by PyTorch but unallocated.\nMore.");
  });
  ASSERT_TRUE(oom);
  EXPECT_EQ(oom->asked, 1'610'612'736);
  EXPECT_EQ(oom->free, 536'870'912);
  EXPECT_EQ(oom->allocated, int64_t{81} << 28);
  EXPECT_EQ(oom->message, "out of memory on the GPU: 1.61 GB asked for, 536.9 MB free, 21.7 GB allocated");
  EXPECT_EQ(oom->numbers(), "1.61 GB asked for, 536.9 MB free, 21.7 GB allocated");
}

// y = sum(tanh(x w)^2): a training step of somebody else's model.
class SomeModel : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { install_host_allocator(); }
  void TearDown() override {
    fail_host_allocation(0);
    set_host_limit(0);
  }
  void learn(int64_t rows) {
    at::AutoGradMode with_grad(true);
    const at::Tensor y = at::ones({rows, 64}).mm(weight_).tanh();
    torch::autograd::backward({y.pow(2).sum()});
  }
  RetryOptions options() {
    RetryOptions options;
    options.clean_up = [this] { weight_.mutable_grad().reset(); };
    return options;
  }
  at::Tensor weight_ = at::full({64, 64}, 0.01).set_requires_grad(true);
};

TEST_F(SomeModel, AfterAFailureNothingIsHeld) {
  learn(32);
  weight_.mutable_grad().reset();
  const int64_t floor = host_memory().in_use;
  int64_t n = 1;
  for (;; n++) {
    fail_host_allocation(n);
    const auto oom = catch_oom([&] { learn(32); });
    fail_host_allocation(0);
    weight_.mutable_grad().reset();
    free_after_oom(c10::kCPU);
    ASSERT_EQ(host_memory().in_use, floor) << n;
    if (!oom) break;
    EXPECT_EQ(oom->allocated >= floor, true);
  }
  EXPECT_GT(n, 10);
}

// What an error keeps alive.
struct KeptByAnError : std::bad_alloc {
  explicit KeptByAnError(std::shared_ptr<int> kept) : kept_(std::move(kept)) {}
  std::shared_ptr<int> kept_;
};

TEST(OomLoop, CleansUpWhenTheErrorIsGoneAndThenRecovers) {
  const auto kept = std::make_shared<int>(0);
  std::vector<std::string> order;
  OomLoop attempts(
      c10::kCPU,
      [&] {
        EXPECT_EQ(kept.use_count(), 1) << "the error still keeps it";
        order.emplace_back("clean up");
      },
      [&](const OutOfMemory& oom) { order.push_back(oom.message); });
  int runs = 0;
  while (attempts.next()) {
    try {
      order.emplace_back("work");
      if (++runs <= 2) throw KeptByAnError(kept);
    } catch (const std::exception& error) {
      attempts.failed(error);
    }
  }
  EXPECT_EQ(order, (std::vector<std::string>{"work", "clean up", kOutOfHostMemory, "work", "clean up",
                                             kOutOfHostMemory, "work"}));
  EXPECT_FALSE(attempts.next()) << "the work is done";
}

TEST(OomLoop, LeavesOtherErrorsAlone) {
  OomLoop attempts(c10::kCPU, {}, [](const OutOfMemory&) { FAIL(); });
  const auto attempt = [&] {
    while (attempts.next()) {
      try {
        throw DataError("rows.jsonl:3: is bad");
      } catch (const std::exception& error) {
        attempts.failed(error);
      }
    }
  };
  EXPECT_THROW(attempt(), DataError);
}

TEST(OomLoop, GoesOnAfterALoopThatGaveUp) {
  bool cleaned_up = false;
  std::string why;
  OomLoop attempts(
      c10::kCPU, [&] { cleaned_up = true; }, [&](const OutOfMemory& oom) { why = oom.message; });
  int runs = 0;
  while (attempts.next()) {
    try {
      if (++runs == 1) throw OutOfMemoryError("a step did not fit\nweights 1 GB");
    } catch (const OutOfMemoryError& error) {
      attempts.gave_up(error);
    }
  }
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(why, "a step did not fit\nweights 1 GB") << "the whole text";
  EXPECT_FALSE(cleaned_up) << "the other loop has";
}

TEST_F(SomeModel, RetryOnOomReturnsTheResultAndTellsOfRetries) {
  RetryOptions with = options();
  int64_t told = 0;
  with.on_retry = [&](const OutOfMemory& oom, int64_t) {
    told++;
    EXPECT_GT(oom.asked, 0);
  };
  fail_host_allocation(3, 4);
  EXPECT_EQ(retry_on_oom([&] { return learn(8), 42; }, with), 42);
  EXPECT_GE(told, 1);
  int64_t runs = 0;
  retry_on_oom([&] { runs++; });  // nothing to return, nothing to retry
  EXPECT_EQ(runs, 1);
}

TEST_F(SomeModel, RetryOnOomGivesUp) {
  RetryOptions with = options();
  with.max_retries = 2;
  int64_t runs = 0;
  const std::string message = test::error_message<OutOfMemoryError>([&] {
    retry_on_oom(
        [&] {
          runs++;
          throw std::bad_alloc();
        },
        with);
  });
  EXPECT_EQ(runs, 3);
  EXPECT_TRUE(test::contains(message, "after 2 retries")) << message;
  EXPECT_THROW(retry_on_oom([] { throw std::logic_error("another"); }), std::logic_error);
}

TEST_F(SomeModel, AdaptiveBatchFindsTheSizeThatFits) {
  set_host_limit(host_memory().in_use + 600'000);
  std::vector<int64_t> tried;
  const int64_t size = adaptive_batch(
      [&](int64_t rows) {
        tried.push_back(rows);
        learn(rows);
      },
      4096, options());
  EXPECT_EQ(size, tried.back());
  EXPECT_EQ(tried.front(), 4096);
  for (size_t i = 1; i < tried.size(); i++) EXPECT_EQ(tried[i], tried[i - 1] / 2);
  EXPECT_LT(size, 1024);
  EXPECT_GT(size, 64);
}

TEST_F(SomeModel, AdaptiveBatchGivesUpAtOne) {
  EXPECT_THROW(adaptive_batch([](int64_t) { throw std::bad_alloc(); }, 8), OutOfMemoryError);
}

TEST_F(SomeModel, OomHandlerRemembersTheSizeAndTriesALargerOneLater) {
  OomHandler handler(64, options(), /*minimum=*/4, /*grow_after=*/3);
  int64_t fits = 20;
  std::vector<int64_t> sizes;
  const auto work = [&](int64_t size) {
    if (size > fits) throw std::bad_alloc();
    sizes.push_back(size);
  };
  for (int i = 0; i < 5; i++) handler.run(work);
  EXPECT_EQ(sizes, (std::vector<int64_t>{16, 16, 16, 16, 16})) << "32 was tried again and did not fit";
  fits = 100;
  for (int i = 0; i < 8; i++) handler.run(work);
  EXPECT_EQ(handler.size(), 64);
  fits = 1;
  EXPECT_THROW(handler.run(work), OutOfMemoryError);
  EXPECT_EQ(handler.size(), 4) << "not below the minimum";

  OomHandler resumed(64);
  resumed.set_budget(handler.budget());
  EXPECT_EQ(resumed.size(), 4);
}

TEST(ThrashWatch, WantsThreeStepsInARow) {
  int64_t retries = 0;
  ThrashWatch watch([&] { return retries; });
  std::vector<bool> seen;
  for (const int64_t more : {1, 1, 0, 2, 1, 1, 1, 1, 1, 0}) {
    retries += more;
    seen.push_back(watch.after_step());
  }
  EXPECT_EQ(seen, (std::vector<bool>{false, false, false, false, false, true, false, false, true, false}));
}

}  // namespace
}  // namespace trainer
