#include "models/tensor_views.h"

#include <ATen/ATen.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/memory/host_allocator.h"

namespace trainer {

namespace {

struct TypeOfTensor {
  Dtype in_files;
  at::ScalarType in_memory;
  bool is_saved;
};

constexpr TypeOfTensor kTypesOfTensors[]{
    {Dtype::f64, at::kDouble, true},
    {Dtype::f32, at::kFloat, true},
    {Dtype::f16, at::kHalf, true},
    {Dtype::bf16, at::kBFloat16, true},
    {Dtype::i64, at::kLong, true},
    {Dtype::i32, at::kInt, true},
    {Dtype::i16, at::kShort, false},
    {Dtype::i8, at::kChar, false},
    {Dtype::u8, at::kByte, true},
    {Dtype::boolean, at::kBool, false},
    {Dtype::f8_e4m3, at::kFloat8_e4m3fn, false},
};

}  // namespace

at::ScalarType scalar_type(Dtype dtype) {
  for (const TypeOfTensor& type : kTypesOfTensors) {
    if (type.in_files == dtype) return type.in_memory;
  }
  throw FormatError("unknown tensor type");
}

Dtype file_dtype(at::ScalarType type) {
  for (const TypeOfTensor& known : kTypesOfTensors) {
    if (known.in_memory == type && known.is_saved) return known.in_files;
  }
  throw FormatError(concat("tensors of type ", c10::toString(type), " cannot be saved"));
}

at::Tensor mapped_tensor(const TensorView& view, std::shared_ptr<const MappedFile> mapping, bool counted) {
  const auto charge = counted ? std::make_shared<HostCharge>(static_cast<int64_t>(view.nbytes)) : nullptr;
  return at::from_blob(
      view.data, view.shape, [mapping, charge](void*) {}, at::TensorOptions().dtype(scalar_type(view.dtype)));
}

TensorView view_of(const at::Tensor& tensor) {
  return {file_dtype(tensor.scalar_type()), tensor.sizes().vec(),
          static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

}  // namespace trainer
