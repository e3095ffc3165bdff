#include "ops/coded_product.h"

#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include <ATen/ATen.h>
#include <ATen/ceil_div.h>
#include <ATen/core/grad_mode.h>

#include "device/op.h"
#include "formats/bitsandbytes.h"
#include "ops/kernels.h"

namespace trainer {
namespace {

constexpr int64_t kMostRows = 32;
constexpr int64_t kCodesAtOnce = 16;                                 // bytes that a thread reads
constexpr int64_t kOutputsOfBlock = 16, kThreadsOfBlock = 256;       // as coded_product.cu has them
constexpr int64_t kBlocksWanted = 256, kLeastBytesOfPart = 8 << 10;  // where inputs are split

// These are the structs of coded_product.cu.
struct FewRows {
  const void* x;
  int64_t stride;
  int rows, inputs;
};

struct Nf4Values {
  std::array<float, 16> at = kNf4Values;
};

struct Nf4Codes {
  const void *codes, *scales, *nested_scales, *scale_map;
  float offset;
};

struct Fp8Codes {
  const void *codes, *scales;
  int block_rows, block_columns, scales_a_row;
};

struct CodedOutput {
  void *out, *sums;
  const void* bias;
  int outputs, parts, first_block;
};

constexpr size_t kMostWeights = 4;
template <class Codes>
struct CodedWeights {
  Codes codes[kMostWeights];
  CodedOutput to[kMostWeights];
  int count;
};

// The scales that the 8-bit codes of double quantisation stand for, on a GPU. They stay there: when the
// program ends, CUDA may be gone before them.
const at::Tensor& scale_map_on(at::Device device) {
  static std::mutex mutex;
  static auto& maps = *new std::map<std::string, at::Tensor>;
  const std::scoped_lock lock(mutex);
  at::Tensor& map = maps[device.str()];
  if (!map.defined()) {
    const DynamicMap values = dynamic_map(true);
    map = at::tensor(at::ArrayRef<float>(values.data(), values.size()), at::kFloat).to(device);
  }
  return map;
}

// The inputs that 16 bytes of codes stand for.
int64_t inputs_at_once(const CodedWeight& w) { return w.nf4 != nullptr ? 2 * kCodesAtOnce : kCodesAtOnce; }

// Whether 16 bytes of codes have one scale, wherever they are.
bool is_wide(const CodedWeight& w) {
  const int64_t inputs = w.shape()[1], at_once = inputs_at_once(w);
  const bool aligned = reinterpret_cast<uintptr_t>(w.codes().const_data_ptr()) % 16 == 0;
  const bool one_scale = w.nf4 != nullptr || w.fp8->block_columns() % at_once == 0;
  return aligned && one_scale && inputs % at_once == 0;
}

// The parts of the inputs. Not more than the shape asks for: each is a sum of its own.
int64_t parts_of(const CodedWeight& w) {
  const int64_t blocks = at::ceil_div(w.shape()[0], kOutputsOfBlock),
                bytes = w.shape()[1] * kCodesAtOnce / inputs_at_once(w);
  int64_t parts = 1;
  while (blocks * parts < kBlocksWanted && bytes >= 2 * parts * kLeastBytesOfPart) parts *= 2;
  return parts;
}

Nf4Codes codes_for(const Nf4Tensor& w, const at::Tensor& x) {
  const bool nested = w.double_quantised();
  return {elements(w.codes, x, at::kByte), elements(w.scales, x, nested ? at::kByte : at::kFloat),
          elements(w.nested_scales, x, at::kFloat),
          nested && !x.is_meta() ? scale_map_on(x.device()).const_data_ptr() : nullptr, w.offset};
}

Fp8Codes codes_for(const Fp8Tensor& w, const at::Tensor& x) {
  return {elements(w.codes, x, at::kByte), elements(w.scales, x, at::kFloat),
          static_cast<int>(w.block_rows()), static_cast<int>(w.block_columns()),
          static_cast<int>(fp8_blocks(w.shape, w.block)[1])};
}

const Nf4Tensor& tensor_of(const CodedWeight& w, const Nf4Codes&) { return *w.nf4; }
const Fp8Tensor& tensor_of(const CodedWeight& w, const Fp8Codes&) { return *w.fp8; }

// Weights of one format and their products, in one launch.
template <class Codes>
class CodedLaunch {
 public:
  CodedLaunch(const at::Tensor& x, bool wide)
      : x_(x), kernels_(kernels_for(x, "coded_product", wide ? 16 / x.element_size() : 1)) {}

  bool is_full() const { return static_cast<size_t>(weights_.count) == kMostWeights; }

  void add(const CodedWeight& w, const at::Tensor& out) {
    const int64_t outputs = w.shape()[0], parts = parts_of(w);
    if (parts > 1) sums_.push_back(at::empty({parts, x_.size(0), outputs}, x_.options().dtype(at::kFloat)));
    weights_.codes[weights_.count] = codes_for(tensor_of(w, Codes()), x_);
    weights_.to[weights_.count++] = {
        out.mutable_data_ptr(),  parts > 1 ? sums_.back().mutable_data_ptr() : nullptr,
        elements(w.bias, x_),    static_cast<int>(outputs),
        static_cast<int>(parts), static_cast<int>(blocks_)};
    blocks_ += parts * at::ceil_div(outputs, kOutputsOfBlock);
  }

  void start() const {
    const KernelGrid grid{blocks_, 1, kThreadsOfBlock};
    const FewRows in{x_.const_data_ptr(), x_.stride(0), static_cast<int>(x_.size(0)),
                     static_cast<int>(x_.size(1))};
    if constexpr (std::is_same_v<Codes, Nf4Codes>) {
      kernels_.start("multiply_nf4", grid, in, weights_, Nf4Values());
    } else {
      kernels_.start("multiply_fp8", grid, in, weights_);
    }
    for (int i = 0; i < weights_.count; i++) {
      const CodedOutput& to = weights_.to[i];
      if (to.parts > 1) kernels_.start("sum_parts", grid_of(x_.size(0) * to.outputs), to, in.rows);
    }
  }

 private:
  at::Tensor x_;
  const Kernels& kernels_;
  CodedWeights<Codes> weights_{};
  int64_t blocks_ = 0;
  std::vector<at::Tensor> sums_;
};

// Those weights of this format and width.
template <class Codes>
void multiply_all(const at::Tensor& x, const std::vector<CodedWeight>& weights,
                  const std::vector<at::Tensor>& out, bool wide) {
  std::optional<CodedLaunch<Codes>> launch;
  for (size_t i = 0; i < weights.size(); i++) {
    const bool is_nf4 = weights[i].nf4 != nullptr;
    if (is_nf4 != std::is_same_v<Codes, Nf4Codes> || is_wide(weights[i]) != wide) continue;
    if (!launch) launch.emplace(x, wide);
    launch->add(weights[i], out[i]);
    if (!launch->is_full()) continue;
    launch->start();
    launch.reset();
  }
  if (launch) launch->start();
}

// Rows that begin at multiples of 16 bytes, where their length allows it, so that the kernel depends on the
// weights alone.
at::Tensor aligned_rows(const at::Tensor& x) {
  const int64_t width = 16 / static_cast<int64_t>(x.element_size());
  if (x.stride(1) != 1) return x.contiguous();
  return x.size(1) % width != 0 || width_for(x.size(1), {x}, {x.stride(0)}) > 1
             ? x
             : x.clone(at::MemoryFormat::Contiguous);
}

std::vector<at::Tensor> coded_products_gpu(const at::Tensor& x_, const std::vector<CodedWeight>& weights) {
  const at::Tensor x = aligned_rows(x_);
  std::vector<at::Tensor> out;
  for (const CodedWeight& w : weights) {
    TORCH_CHECK(w.shape()[1] == x.size(1), "coded_products: a weight of shape ", w.shape(), " for rows of ",
                x.size(1));
    check_fits(w.shape()[0], "coded_products");
    out.push_back(at::empty({x.size(0), w.shape()[0]}, x.options()));
  }
  for (const bool wide : {true, false}) {
    multiply_all<Nf4Codes>(x, weights, out, wide);
    multiply_all<Fp8Codes>(x, weights, out, wide);
  }
  return out;
}

// Where there is no such kernel, widened.
std::vector<at::Tensor> coded_products_cpu(const at::Tensor& x, const std::vector<CodedWeight>& weights) {
  std::vector<at::Tensor> out;
  for (const CodedWeight& w : weights) {
    const at::Tensor values = w.nf4 != nullptr
                                  ? dequantise(*w.nf4, 0, w.nf4->numel(), x.scalar_type()).view(w.shape())
                                  : widen_fp8(*w.fp8, 0, w.shape()[0], x.scalar_type());
    out.push_back(x.mm(values.t()));
    if (w.bias.defined()) out.back().add_(w.bias);
  }
  return out;
}

constexpr Op kCodedProducts{"trainer::coded_products", coded_products_cpu, coded_products_gpu};

}  // namespace

std::vector<at::Tensor> CodedWeight::tensors() const {
  if (fp8 != nullptr) return fp8->tensors();
  std::vector<at::Tensor> tensors{nf4->codes, nf4->scales};
  if (nf4->double_quantised()) tensors.push_back(nf4->nested_scales);
  return tensors;
}

bool can_multiply_codes(const at::Tensor& x) {
  const bool taken = x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16;
  return taken && x.dim() == 2 && x.size(0) <= kMostRows && !at::GradMode::is_enabled() &&
         runs_on_gpu(x.device()) && has_kernels(x.device());
}

std::vector<at::Tensor> coded_products(const at::Tensor& x, const std::vector<CodedWeight>& weights) {
  return kCodedProducts(x, weights);
}

}  // namespace trainer
