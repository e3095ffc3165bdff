#include "gemm/few_rows.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include "device/op.h"
#include "device/target_device.h"
#include "gemm/few_rows_loops.h"

namespace trainer {
namespace {

constexpr int64_t kTaskNumbers =
    1 << 16;  // of a weight, that a thread takes at once: half of its second cache
constexpr int64_t kFewSerialNumbers = 1 << 14;  // products of fewer are not worth waking threads

// A product as its tasks see it: blocks of its outputs.
struct FewRowsWork {
  const FewRowsProduct* product;
  at::Tensor x;         // as it is multiplied: contiguous, in fp32 or bf16
  at::ScalarType type;  // of the weight
  int64_t outputs, step, tasks;
};

// The loop for x and a weight of this type.
void (*loop_of(const at::Tensor& x, at::ScalarType weight))(const FewRows&) {
  const FewRowsLoops& loops = *few_rows_loops();
  if (x.scalar_type() == at::kBFloat16) return loops.bf16;
  return weight == at::kBFloat16 ? loops.widened : loops.fp32;
}

FewRowsWork work_of(const FewRowsProduct& product) {
  FewRowsWork work{&product, product.x.contiguous(), at::kFloat, product.out.size(1), 0, 0};
  const int64_t depth = work.x.size(1);
  work.type = product.w.defined() ? product.w.scalar_type() : work.x.scalar_type();
  if (work.x.scalar_type() == at::kBFloat16 && few_rows_loops()->bf16 == nullptr)
    work.x = work.x.to(at::kFloat);
  const int64_t units = kTaskNumbers / std::max<int64_t>(depth, 1) / kFewRowsUnit;
  work.step = std::max<int64_t>(units, 1) * kFewRowsUnit;
  work.tasks = (work.outputs + work.step - 1) / work.step;
  return work;
}

// The outputs of one task; `sums` has room for all rows of it. Parts are found by pointers: a step has
// thousands of tasks, and a view takes longer than a tenth of one.
void run_task(const FewRowsWork& work, int64_t task, std::vector<float>& sums) {
  const FewRowsProduct& product = *work.product;
  const int64_t first = task * work.step, count = std::min(work.step, work.outputs - first);
  const at::Tensor panel = product.w.defined() ? at::Tensor() : product.panel(first, count);
  const at::Tensor& w = product.w.defined() ? product.w : panel;
  const int64_t rows = work.x.size(0);
  sums.resize(static_cast<size_t>(std::max<int64_t>(rows * count, static_cast<int64_t>(sums.size()))));
  const FewRows task_rows{.x = work.x.const_data_ptr(),
                          .w = static_cast<const char*>(w.const_data_ptr()) +
                               (panel.defined() ? 0 : first * w.stride(0) * w.element_size()),
                          .sums = sums.data(),
                          .x_stride = work.x.stride(0),
                          .w_stride = w.stride(0),
                          .sums_stride = count,
                          .rows = rows,
                          .outputs = count,
                          .depth = work.x.size(1)};
  loop_of(work.x, w.scalar_type())(task_rows);
  const at::Tensor& out = product.out;
  const auto scale = static_cast<float>(product.scale);
  if (out.scalar_type() == at::kFloat) {
    few_rows_loops()->put_fp32(task_rows, out.mutable_data_ptr<float>() + first, out.stride(0), scale,
                               product.begun);
  } else {
    few_rows_loops()->put_bf16(task_rows, out.mutable_data_ptr<at::BFloat16>() + first, out.stride(0), scale,
                               product.begun);
  }
}

void few_rows_cpu(at::TensorList /*sums*/, at::TensorList /*x*/,
                  const std::vector<FewRowsProduct>& products) {
  std::vector<FewRowsWork> works;
  int64_t tasks = 0, numbers = 0;
  for (const FewRowsProduct& product : products) {
    TORCH_CHECK(
        product.out.dim() == 2 && product.out.size(0) == product.x.size(0) && product.out.stride(1) == 1,
        "few_rows: ", product.x.sizes(), " into ", product.out.sizes());
    if (product.out.is_meta() || product.out.numel() == 0) continue;
    works.push_back(work_of(product));
    tasks += works.back().tasks;
    numbers += product.out.size(1) * product.x.size(1);
  }
  std::atomic<int64_t> next{0};
  std::exception_ptr failure;
  std::mutex mutex;
  const bool serial = at::in_parallel_region() || numbers < kFewSerialNumbers || tasks == 1;
  // Threads take work as they become free: other programs on the machine slow some of them down.
#pragma omp parallel if (!serial)
  {
    const at::NoGradGuard no_grad;
    thread_local std::vector<float> sums;
    try {
      for (int64_t task; (task = next.fetch_add(1)) < tasks;) {
        auto work = works.begin();
        for (; task >= work->tasks; work++) task -= work->tasks;
        run_task(*work, task, sums);
      }
    } catch (...) {  // no memory for a panel
      const std::lock_guard lock(mutex);
      failure = std::current_exception();
      next = tasks;
    }
  }
  if (failure) std::rethrow_exception(failure);
}

// The operator of gemm/products.cpp in a second form: observers see sums and operands in the same places.
constexpr Op kFewRows{"trainer::add_products", few_rows_cpu};

}  // namespace

bool can_multiply_few_rows(const at::Tensor& x, at::ScalarType weight) {
  if (target_of(x.device()) != c10::kCPU || at::GradMode::is_enabled() || few_rows_loops() == nullptr)
    return false;
  const at::ScalarType type = x.scalar_type();
  const bool known = weight == at::kBFloat16 || (weight == at::kFloat && type == at::kFloat);
  return known && (type == at::kFloat || type == at::kBFloat16);
}

void few_rows_products(const std::vector<FewRowsProduct>& products) {
  std::vector<at::Tensor> sums, x;
  for (const FewRowsProduct& product : products) {
    sums.push_back(product.out);
    x.push_back(product.x);
  }
  kFewRows(sums, x, products);
}

}  // namespace trainer
