// Linear layers with adapters in bf16: products may be computed in a wider type, never in a narrower one.
#include "trainer/nn/linear.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "nn/dora_linear.h"
#include "ops/matmul.h"
#include "support/reference.h"

namespace trainer {
namespace {

// x, weight, A, B, c; as PEFT writes it, without dropout.
at::Tensor composed_dora(const Tensors& in) {
  const at::Tensor low_rank = in[0].mm(in[2].t());
  return ((in[0].mm(in[1].t()) + low_rank.mm(in[3].t()) * 2.0) * in[4]).to(in[0].scalar_type());
}

at::Tensor kernel_dora(const Tensors& in) {
  const at::ScalarType type = product_type(in[0]);
  return dora_linear(in[0], in[1].detach(), std::nullopt, in[2].to(type), in[3].to(type),
                     in[4].to(at::kFloat), at::zeros({in[0].size(0)}, at::kLong), 0, 0.0, 2.0) +
         in[1].sum() * 0;  // the weight is frozen
}

TEST(DoraLinear, IsNoFurtherFromTheDefinitionThanPlainAutograd) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    Random random(3);
    const Tensors in{random.normal({40, 64}, type), random.normal({48, 64}, type),
                     random.normal({4, 64}, type), random.normal({48, 4}, type), random.normal({48}, type)};
    const at::Tensor weight = random.normal({40, 48}, type);
    const Tensors ours = value_and_gradients(kernel_dora, in, weight, type);
    const Tensors theirs = value_and_gradients(composed_dora, in, weight, type);
    const Tensors exact = value_and_gradients(composed_dora, in, weight, at::kDouble);
    for (const size_t i : {0, 1, 3, 4, 5}) {  // the value; gradients of all but the weight
      const double error = relative_difference(theirs[i], exact[i]);
      EXPECT_LE(relative_difference(ours[i], exact[i]), 1.2 * error + 1e-7) << type << " " << i;
    }
  }
}

TEST(Linear, AFewRowsInGenerationAreAsCloseToTheDefinitionAsMany) {
  Random random(5);
  Linear linear(256, 96, true);
  linear.weight.value = random.normal({96, 256}, at::kBFloat16);
  linear.bias->value = random.normal({96}, at::kBFloat16);
  linear.add_lora({8, 2.0, 0.0, false, false});
  linear.lora->a.weight.value = random.normal({8, 256}) / 16;
  linear.lora->b.weight.value = random.normal({96, 8});
  const at::Tensor x = random.normal({64, 256}, at::kBFloat16);
  const auto wide = [](const at::Tensor& t) { return t.to(at::kDouble); };
  const at::Tensor low_rank = wide(x).mm(wide(linear.lora->a.weight.value.tensor()).t());
  const at::Tensor exact = wide(x).mm(wide(linear.weight.value.tensor()).t()) +
                           wide(linear.bias->value.tensor()) +
                           low_rank.mm(wide(linear.lora->b.weight.value.tensor()).t()) * 2.0;
  const ForwardContext context;
  const at::Tensor keys = at::zeros({64}, at::kLong);
  for (const int64_t rows : {1, 4, 64}) {
    const at::Tensor y = linear.forward(x.narrow(0, 0, rows), keys.narrow(0, 0, rows), context);
    EXPECT_LE(relative_difference(y, exact.narrow(0, 0, rows)), 0.006) << rows;  // bf16: 0.004 a rounding
  }
}

}  // namespace
}  // namespace trainer
