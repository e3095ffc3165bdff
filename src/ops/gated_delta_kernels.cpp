// Starts the kernels of the gated delta rule (gated_delta.cu, gated_delta_backward.cu).
#include <algorithm>

#include <ATen/ATen.h>

#include "trainer/base/strings.h"
#include "trainer/device/device.h"

#include "ops/gated_delta.h"
#include "ops/kernels.h"
#include "ops/recurrent_kernels.h"
#include "ops/run_table.h"

namespace trainer {
namespace {

// The structs are those of gated_delta.cuh and gated_delta.cu.
struct DeltaCall {
  const void *qkv, *decay, *beta;
  int64_t row;
  int key_heads, value_heads, first_chunk;
};
struct ChunkParts {
  void *u, *w, *n, *states, *t, *rest, *kept;
};
struct EndStates {
  const void* first;
  void* last;
};
struct GradientParts {
  const void* g_out;
  void *n, *states, *queries, *keys, *reads, *g_qkv, *g_decay, *g_beta;
  int64_t row, columns;
};

// As the kernels take it: rows of 16 bytes' multiples.
at::Tensor in_pieces(const at::Tensor& x) {
  return x.stride(1) == 1 && width_for(x.size(1), {x}, {x.stride(0)}) > 1 ? x : x.contiguous();
}

void* data_of(const at::Tensor& x) { return x.defined() ? x.mutable_data_ptr() : nullptr; }

// What the kernels take, and the tensors that it points to.
class DeltaKernels {
 public:
  DeltaKernels(const DeltaInputs& in, const DeltaShape& shape_, const TokenRuns& runs_)
      : shape(shape_),
        runs(runs_),
        qkv(in_pieces(in.qkv)),
        decay(in.decay.contiguous()),
        beta(in.beta.contiguous()),
        dim_(shape.key_dim),
        bytes_(qkv.element_size()),
        slice_(bytes_ == 2 ? 32 : 16),
        chunks_(all_tiles(runs, kDeltaChunk)) {
    check_fits(qkv.size(0), "gated_delta");
    call = {elements(qkv, qkv),
            elements(decay, qkv, at::kFloat),
            elements(beta, qkv, at::kFloat),
            qkv.stride(0),
            static_cast<int>(shape.key_heads),
            static_cast<int>(shape.value_heads),
            0};
  }

  at::Tensor rows() const { return of_chunks({kDeltaChunk, dim_}, qkv.scalar_type()); }
  at::Tensor float_rows() const { return of_chunks({kDeltaChunk, dim_}, at::kFloat); }
  at::Tensor states() const { return of_chunks({dim_, dim_}, qkv.scalar_type()); }
  at::Tensor pairs() const { return of_chunks({kDeltaChunk, kDeltaChunk}, qkv.scalar_type()); }
  at::Tensor numbers(int64_t count) const { return of_chunks({count}, at::kFloat); }

  // Bytes of matrices in shared memory (device/products.cuh).
  int64_t shared_rows() const { return matrix(kDeltaChunk, dim_); }
  int64_t shared_slice() const { return matrix(kDeltaChunk, slice_); }
  int64_t shared_state() const { return matrix(dim_, slice_); }
  int64_t shared_pairs() const { return matrix(kDeltaChunk, kDeltaChunk); }
  static int64_t shared_numbers(int64_t of_each_token) { return kDeltaChunk * of_each_token * 4; }

  // A block for each chunk and head.
  template <class... Arguments>
  void start_by_chunk(const char* file, const char* function, int64_t shared, int64_t heads, int64_t threads,
                      const Arguments&... arguments) {
    for_run_tables(runs, kDeltaChunk, [&](const RunTable& table, int64_t, int64_t first_chunk) {
      call.first_chunk = static_cast<int>(first_chunk);
      kernels(file).start(function, {table.all_tiles(), heads, threads, shared}, call, table, arguments...);
    });
  }
  // A block for each run, head and slice of its states. arguments(number of the table's first run) gives a
  // tuple.
  template <class Arguments>
  void start_by_run(const char* file, const char* function, int64_t shared, const Arguments& arguments) {
    for_run_tables(runs, kDeltaChunk, [&](const RunTable& table, int64_t first_run, int64_t first_chunk) {
      call.first_chunk = static_cast<int>(first_chunk);
      const KernelGrid grid{table.count * (dim_ / slice_), shape.value_heads, 128, shared};
      std::apply([&](const auto&... each) { kernels(file).start(function, grid, call, table, each...); },
                 arguments(first_run));
    });
  }

  DeltaShape shape;
  const TokenRuns& runs;
  at::Tensor qkv, decay, beta;
  DeltaCall call{};

 private:
  at::Tensor of_chunks(std::vector<int64_t> sizes, at::ScalarType type) const {
    sizes.insert(sizes.begin(), {chunks_, shape.value_heads});
    return at::empty(sizes, qkv.options().dtype(type));
  }
  int64_t matrix(int64_t rows, int64_t cols) const { return rows * (cols * bytes_ + 16); }
  const Kernels& kernels(const char* file) const {
    const char* element = qkv.scalar_type() == at::kFloat ? "float" : "bf16";
    return find_kernels(qkv.device(), kernel_file(file), concat("Element=", element, " kHeadDim=", dim_));
  }

  int64_t dim_, bytes_, slice_, chunks_;
};

// What forward makes on its way, and backward makes again.
struct ForwardParts {
  ForwardParts(const DeltaKernels& k, bool with_inverse)
      : u(k.rows()),
        w(k.rows()),
        n(k.rows()),
        states(k.states()),
        rest(k.numbers(kDeltaChunk)),
        kept(k.numbers(1)) {
    if (with_inverse) t = k.pairs();
  }
  ChunkParts pointers() const {
    return {data_of(u), data_of(w), data_of(n), data_of(states), data_of(t), data_of(rest), data_of(kept)};
  }
  at::Tensor u, w, n, states, t, rest, kept;
};

void walk_forward(DeltaKernels& k, const ForwardParts& parts, const at::Tensor& first,
                  const at::Tensor& last) {
  const DeltaShape& s = k.shape;
  constexpr int64_t of_inverse = kDeltaChunk * (kDeltaChunk + 4) * 4;
  k.start_by_chunk("gated_delta", "prepare_chunks",
                   k.shared_rows() + k.shared_pairs() + of_inverse + DeltaKernels::shared_numbers(5),
                   s.value_heads, 128, parts.pointers());
  const int64_t of_run = s.value_heads * s.key_dim * s.value_dim;
  k.start_by_run("gated_delta", "walk_chunks",
                 2 * k.shared_rows() + k.shared_state() + k.shared_slice() + DeltaKernels::shared_numbers(1),
                 [&](int64_t first_run) {
                   EndStates ends{};
                   if (first.defined())
                     ends.first = element_at(first.const_data_ptr(), first, first_run * of_run);
                   if (last.defined())
                     ends.last = element_at(last.mutable_data_ptr(), last, first_run * of_run);
                   return std::tuple{parts.pointers(), ends};
                 });
}

}  // namespace

bool takes_gated_delta(const at::Tensor& qkv, const DeltaShape& shape) {
  const int64_t dim = shape.key_dim;
  const bool known = qkv.scalar_type() == at::kFloat || qkv.scalar_type() == at::kBFloat16;
  const bool fits = known && dim == shape.value_dim && (dim == 32 || dim == 64 || dim == 128);
  const c10::Device device = qkv.device();
  if (!fits || !uses_recurrent_kernels(device)) return false;
  return device.is_cpu() || computes_in_bf16(c10::Device(c10::kCUDA, std::max<int8_t>(device.index(), 0)));
}

DeltaResult gated_delta_gpu(const DeltaInputs& in, const DeltaShape& shape, const TokenRuns& runs,
                            bool wants_last_states) {
  if (!takes_gated_delta(in.qkv, shape)) return gated_delta_composed(in, shape, runs, wants_last_states);
  DeltaKernels k(in, shape, runs);
  DeltaResult result{zeros_in_padding(in.qkv.size(0), shape.values(), in.qkv.options(), runs), {}, {}};
  if (wants_last_states) {
    result.last_states =
        at::empty({std::ssize(runs), shape.value_heads, shape.key_dim, shape.value_dim}, k.decay.options());
  }
  const at::Tensor first = in.first_states.defined() ? in.first_states.contiguous() : at::Tensor();
  const ForwardParts parts(k, /*with_inverse=*/false);
  walk_forward(k, parts, first, result.last_states);
  const int64_t shared = k.shared_rows() + std::max(k.shared_rows(), k.shared_state() + k.shared_slice()) +
                         k.shared_pairs() + DeltaKernels::shared_numbers(6);
  k.start_by_chunk("gated_delta", "read_chunks", shared, shape.value_heads, 128, parts.pointers(),
                   data_of(result.out));
  return result;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> gated_delta_backward_gpu(const at::Tensor& grad,
                                                                        const DeltaInputs& in,
                                                                        const at::Tensor& /*kept_states*/,
                                                                        const DeltaShape& shape,
                                                                        const TokenRuns& runs) {
  DeltaKernels k(in, shape, runs);
  const at::Tensor g = in_pieces(grad);
  const at::Tensor g_qkv = zeros_in_padding(in.qkv.size(0), shape.columns(), in.qkv.options(), runs),
                   g_decay = zeros_in_padding(k.decay, runs), g_beta = zeros_in_padding(k.beta, runs);
  const ForwardParts parts(k, /*with_inverse=*/true);
  walk_forward(k, parts, {}, {});
  const at::Tensor n = k.rows(), states = k.states(), reads = k.numbers(kDeltaChunk);
  GradientParts to{elements(g, k.qkv), data_of(n),     data_of(states),  nullptr,         nullptr,
                   data_of(reads),     data_of(g_qkv), data_of(g_decay), data_of(g_beta), g.stride(0),
                   g_qkv.stride(0)};
  k.start_by_chunk("gated_delta_backward", "read_chunks_back",
                   2 * k.shared_rows() + k.shared_pairs() + DeltaKernels::shared_numbers(6),
                   shape.value_heads, 128, to);
  k.start_by_run(
      "gated_delta_backward", "walk_chunks_back",
      2 * k.shared_rows() + k.shared_state() + 2 * k.shared_slice() + DeltaKernels::shared_numbers(2),
      [&](int64_t) {
        return std::tuple{parts.pointers(), to};
      });
  const at::Tensor queries = k.float_rows(), keys = k.float_rows();
  to.queries = data_of(queries);
  to.keys = data_of(keys);
  const int64_t shared = k.shared_pairs() +
                         std::max(2 * k.shared_rows(), 2 * k.shared_state() + 4 * k.shared_slice()) +
                         DeltaKernels::shared_numbers(17);
  k.start_by_chunk("gated_delta_backward", "chunk_gradients", shared, shape.value_heads, 256,
                   parts.pointers(), to);
  k.start_by_chunk("gated_delta_backward", "finish_gradients", 0, shape.key_heads, 128, to);
  return {g_qkv, g_decay, g_beta};
}

}  // namespace trainer
