#include "export/gguf_layout.h"

#include <string_view>

#include <ATen/ATen.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "formats/text_half.h"
#include "models/families.h"

namespace trainer {
namespace {

at::Tensor reordered(const at::Tensor& rows, const at::Tensor& order, int64_t unit) {
  if (!order.defined()) return rows;
  return rows.reshape({-1, unit, rows.size(1)}).index_select(1, order).reshape(rows.sizes());
}

bool is_t5(const std::string& model_type) {
  return model_type == "t5" || model_type == "mt5" || model_type == "umt5";
}

}  // namespace

at::Tensor GgufPart::in_file(const at::Tensor& rows) const {
  at::Tensor out = reordered(rows, row_order, unit);
  if (column_order.defined()) out = out.index_select(1, column_order);
  if (value == Value::plus_one) out = out + 1;
  if (value == Value::minus_exp) out = -out.exp();
  return times == 1.0 ? out : out * times;
}

at::Tensor GgufPart::a_in_file(const at::Tensor& a) const {
  return column_order.defined() ? a.index_select(1, column_order) : a;
}

at::Tensor GgufPart::b_in_file(const at::Tensor& b) const {
  const at::Tensor own = rows < 0 ? b : b.narrow(0, first_row, rows);
  return reordered(times == 1.0 ? own : own * times, row_order, unit);
}

std::vector<int64_t> GgufPart::shape_in_file(std::vector<int64_t> shape) const {
  if (rows >= 0) shape.at(0) = rows;
  if (squeezed) shape.erase(shape.begin() + 1);
  return shape;
}

std::vector<GgufPart> GgufLayout::parts_of(const std::string& tensor) const {
  constexpr std::string_view own = "model.";
  std::string name = tensor;
  if (name.starts_with(concat(kTextHalf, ".")))
    name = concat(own, name.substr(std::string_view(kTextHalf).size() + 1));
  std::vector<GgufPart> found = parts(name);
  if (found.empty())
    throw FormatError(concat("tensor '", tensor, "' has no name in GGUF's architecture ", architecture,
                             "; export safetensors"));
  return found;
}

bool has_gguf(const std::string& model_type) { return is_t5(model_type) || is_decoder_with_gguf(model_type); }

GgufLayout gguf_layout(const nlohmann::json& config, bool has_head) {
  const std::string model_type = config.at("model_type");
  if (is_t5(model_type)) return gguf_layout_of_t5(config, has_head);
  if (is_decoder_with_gguf(model_type)) return gguf_layout_of_decoder(config, has_head);
  std::vector<std::string> known;
  for (const Family& family : families())
    if (has_gguf(family.model_type)) known.push_back(family.model_type);
  refuse_in_gguf(concat("model_type '", model_type,
                        "' cannot be exported to GGUF, as llama.cpp does not know it ",
                        "(supported: ", join(known), ")"));
}

void GgufKeys::add(const char* key, GgufValue value) {
  all.emplace_back(concat(architecture_, ".", key), std::move(value));
}

void GgufKeys::set(const char* key, GgufValue value) {
  const std::string full = concat(architecture_, ".", key);
  for (auto& [name, old] : all)
    if (name == full) old = value;
}

void refuse_in_gguf(const std::string& what) {
  throw FormatError(concat("config.json: ", what, "; export safetensors"));
}

}  // namespace trainer
