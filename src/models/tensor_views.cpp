#include "models/tensor_views.h"

#include <ATen/ATen.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/memory/host_allocator.h"

namespace trainer {

at::ScalarType scalar_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::f64:
      return at::kDouble;
    case Dtype::f32:
      return at::kFloat;
    case Dtype::f16:
      return at::kHalf;
    case Dtype::bf16:
      return at::kBFloat16;
    case Dtype::i64:
      return at::kLong;
    case Dtype::i32:
      return at::kInt;
    case Dtype::i16:
      return at::kShort;
    case Dtype::i8:
      return at::kChar;
    case Dtype::u8:
      return at::kByte;
    case Dtype::boolean:
      return at::kBool;
  }
  throw FormatError("unknown tensor type");
}

Dtype file_dtype(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return Dtype::f64;
    case at::kFloat:
      return Dtype::f32;
    case at::kHalf:
      return Dtype::f16;
    case at::kBFloat16:
      return Dtype::bf16;
    case at::kLong:
      return Dtype::i64;
    case at::kInt:
      return Dtype::i32;
    case at::kByte:
      return Dtype::u8;
    default:
      throw FormatError(concat("tensors of type ", c10::toString(type), " cannot be saved"));
  }
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
