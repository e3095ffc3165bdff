#include "formats/bitsandbytes.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"

#include "formats/json_file.h"

namespace trainer {
namespace {

// torch.linspace(0.1, 1, count) in fp32: from both ends, each value rounded once.
std::vector<float> tenth_to_one(int count) {
  const float step = (1.0f - 0.1f) / static_cast<float>(count - 1);
  std::vector<float> values;
  for (int i = 0; i < count; i++) {
    values.push_back(i < count / 2 ? std::fma(step, static_cast<float>(i), 0.1f)
                                   : std::fma(-step, static_cast<float>(count - 1 - i), 1.0f));
  }
  return values;
}

}  // namespace

DynamicMap dynamic_map(bool with_sign) {
  constexpr std::array<float, 7> kDecades{1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1.0f};
  std::vector<float> values{0.0f, 1.0f};
  int fractions = with_sign ? 1 : 2;  // in the smallest decade; twice as many in each larger one
  for (const float decade : kDecades) {
    const std::vector<float> borders = tenth_to_one(fractions + 1);
    for (size_t i = 0; i + 1 < borders.size(); i++) {
      const float value = decade * ((borders[i] + borders[i + 1]) / 2.0f);
      values.push_back(value);
      if (with_sign) values.push_back(-value);
    }
    fractions *= 2;
  }
  std::ranges::sort(values);
  DynamicMap map{};
  std::ranges::copy(values, map.begin());
  return map;
}

namespace {

constexpr const char* kUseDense =
    "use the model without quantisation, with model.quantize: nf4 to save memory";

[[noreturn]] void refuse_method(const std::string& what) {
  throw FormatError(concat("config.json: quantization_config: ", what, " is not supported; ", kUseDense));
}

int64_t divided_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

// Copied, because a file's tensors may not be aligned.
std::vector<float> nf4_floats(const TensorView& view) {
  std::vector<float> values(view.nbytes / sizeof(float));
  std::memcpy(values.data(), view.data, values.size() * sizeof(float));
  return values;
}

// Reads the parts of one weight and notes what is wrong with them.
class Nf4Reader {
 public:
  Nf4Reader(const std::map<std::string, TensorView>& tensors, const std::string& weight,
            std::vector<std::string>& problems)
      : tensors_(tensors), weight_(weight), problems_(problems) {}

  void wrong(const std::string& what) {
    problems_.push_back(concat("damaged: ", weight_, ": ", what));
    good_ = false;
  }
  bool good() const { return good_; }

  const TensorView* part(const char* suffix) const {
    const auto found = tensors_.find(weight_ + suffix);
    return found == tensors_.end() ? nullptr : &found->second;
  }
  // The same for a part that must be there, of this type and number of elements.
  const TensorView* part(const char* suffix, Dtype dtype, int64_t count) {
    const TensorView* view = part(suffix);
    if (view == nullptr) {
      problems_.push_back(concat("missing: ", weight_, suffix));
      good_ = false;
    } else if (view->dtype != dtype || view->nbytes != static_cast<size_t>(count) * dtype_size(dtype)) {
      wrong(concat(suffix + 1, ": expected ", count, " numbers of type ", dtype_name(dtype), ", found ",
                   shape_string(view->shape), " of type ", dtype_name(view->dtype)));
      return nullptr;
    }
    return view;
  }

  // A part that must hold these values.
  void map(const char* suffix, std::span<const float> expected) {
    const TensorView* view = part(suffix, Dtype::f32, static_cast<int64_t>(expected.size()));
    if (view == nullptr) return;
    const std::vector<float> found = nf4_floats(*view);
    for (size_t i = 0; i < expected.size(); i++) {
      if (std::fabs(found[i] - expected[i]) <= 1e-6f) continue;
      return wrong(concat(suffix + 1, ": code ", i, " means ", found[i], " there, and ", expected[i],
                          " in bitsandbytes"));
    }
  }

  void finite(const char* suffix, const TensorView* view) {
    if (view == nullptr) return;
    for (const float value : nf4_floats(*view)) {
      if (!std::isfinite(value)) return wrong(concat(suffix + 1, ": has a scale that is infinite or NaN"));
    }
  }

  nlohmann::json state() {
    const TensorView* view = part(kNf4State);
    if (view == nullptr) {
      const bool fp4 = part(".quant_state.bitsandbytes__fp4") != nullptr;
      problems_.push_back(fp4 ? concat("not supported: ", weight_, ": is of type fp4; ", kUseDense)
                              : concat("missing: ", weight_, kNf4State));
      good_ = false;
      return {};
    }
    const std::string text(reinterpret_cast<const char*>(view->data), view->nbytes);
    try {
      return parse_json_object<nlohmann::json>(text, "");
    } catch (const FormatError& error) {
      wrong(concat(kNf4State + 1, error.what()));
      return {};
    }
  }

  void require(const nlohmann::json& state, const char* key, const nlohmann::json& expected) {
    const nlohmann::json found = state.value(key, nlohmann::json());
    if (found != expected)
      wrong(concat(kNf4State + 1, ": ", key, ": expected ", expected.dump(), ", found ", found.dump()));
  }

 private:
  const std::map<std::string, TensorView>& tensors_;
  const std::string& weight_;
  std::vector<std::string>& problems_;
  bool good_ = true;
};

void read_nested(Nf4Reader& reader, const nlohmann::json& state, int64_t blocks, StoredNf4& out) {
  reader.require(state, "nested_blocksize", kNf4ScaleBlock);
  reader.require(state, "nested_dtype", "float32");
  reader.map(kNf4NestedMap, dynamic_map(true));
  const TensorView* scales = reader.part(kNf4NestedScales, Dtype::f32, divided_up(blocks, kNf4ScaleBlock));
  reader.finite(kNf4NestedScales, scales);
  if (scales != nullptr) out.nested_scales = *scales;
  const nlohmann::json offset = state.value("nested_offset", nlohmann::json());
  if (offset.is_number()) out.offset = offset.get<float>();
  if (!offset.is_number() || !std::isfinite(out.offset))
    reader.wrong(concat(kNf4State + 1, ": nested_offset: is no number: ", offset.dump()));
}

}  // namespace

std::optional<BitsandbytesConfig> read_bitsandbytes_config(const nlohmann::json& stored) {
  const bool in_8_bits = config_bool(stored, "load_in_8bit", false),
             in_4_bits = config_bool(stored, "load_in_4bit", false);
  const std::string method =
      config_string(stored, "quant_method", in_8_bits || in_4_bits ? "bitsandbytes" : "");
  if (method != "bitsandbytes") return std::nullopt;
  if (in_8_bits || !in_4_bits) refuse_method("int8 (load_in_8bit)");
  const std::string type = config_string(stored, "bnb_4bit_quant_type", "fp4");
  if (type != "nf4") refuse_method(concat("bnb_4bit_quant_type ", type));
  BitsandbytesConfig out;
  out.double_quant = config_bool(stored, "bnb_4bit_use_double_quant", false);
  const auto skip = stored.find("llm_int8_skip_modules");
  if (skip == stored.end() || skip->is_null()) return out;
  out.skip_modules.emplace();
  if (skip->is_array() && std::ranges::all_of(*skip, [](const auto& entry) { return entry.is_string(); })) {
    skip->get_to(*out.skip_modules);
  } else {
    throw FormatError("config.json: quantization_config: llm_int8_skip_modules: must be a list of names");
  }
  return out;
}

std::vector<std::string> nf4_companions(const std::string& weight) {
  std::vector<std::string> names;
  for (const char* suffix : {kNf4Scales, kNf4Map, kNf4NestedScales, kNf4NestedMap, kNf4State})
    names.push_back(weight + suffix);
  return names;
}

std::optional<StoredNf4> find_stored_nf4(const std::map<std::string, TensorView>& tensors,
                                         const std::string& weight, const std::vector<int64_t>& shape,
                                         std::vector<std::string>& problems) {
  Nf4Reader reader(tensors, weight, problems);
  const nlohmann::json state = reader.state();
  if (!reader.good()) return std::nullopt;
  StoredNf4 out;
  out.shape = shape;
  out.codes = tensors.at(weight);
  reader.require(state, "quant_type", "nf4");
  reader.require(state, "blocksize", kNf4Block);
  if (const nlohmann::json found = state.value("shape", nlohmann::json()); found != nlohmann::json(shape)) {
    problems.push_back(
        concat("misshapen: ", weight, ": expected ", shape_string(shape), ", found ", found.dump()));
    return std::nullopt;
  }
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  if (out.codes.nbytes != static_cast<size_t>(divided_up(count, 2)))
    reader.wrong(concat("expected ", divided_up(count, 2), " bytes of codes, found ", out.codes.nbytes));
  const int64_t blocks = divided_up(count, kNf4Block);
  const bool nested = reader.part(kNf4NestedScales) != nullptr || state.contains("nested_offset");
  const TensorView* scales = reader.part(kNf4Scales, nested ? Dtype::u8 : Dtype::f32, blocks);
  if (scales != nullptr) out.scales = *scales;
  reader.map(kNf4Map, kNf4Values);
  if (nested) {
    read_nested(reader, state, blocks, out);
  } else {
    reader.finite(kNf4Scales, scales);
  }
  return reader.good() ? std::optional(out) : std::nullopt;
}

}  // namespace trainer
