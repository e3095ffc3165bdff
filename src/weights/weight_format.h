// The ways of storing a frozen weight in fewer bits. Each is one row of weight_formats(), and all that is
// particular to it is asked of the row: what config.json says, which tensors of a file it is, what it is in
// memory, how it is quantised, and how it is written. A weight in a format is a WeightSource; a weight in
// none is a plain tensor.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>

#include "trainer/formats/safetensors.h"
#include "trainer/weights/weight.h"

#include "config/weight_formats.h"

namespace trainer {

// How the scales of a weight lie. A format looks at what it has.
struct WeightLayout {
  bool double_quant = false;
  std::array<int64_t, 2> block{};  // rows and columns with one scale; 0: all of them
};

// The quantization_config of a config.json.
struct StoredQuantisation {
  const WeightFormat* format = nullptr;
  WeightLayout layout;
  // Modules that stay in 16 bits, as Transformers matches them; nullopt: only the output head.
  std::optional<std::vector<std::string>> skip_modules;
};

// A weight in a model's files.
struct StoredWeight {
  std::vector<int64_t> shape;  // the weight's shape
  // Flat, one for each of WeightSource::tensors(). The first has the values; the others are small.
  std::vector<TensorView> parts;
  std::string metadata;                            // see WeightSource
  std::optional<Dtype> scale_type = std::nullopt;  // of the others in memory; nullopt: as in the file
};

// What the quantization_config of a written model is about.
struct WrittenQuantisation {
  bool double_quant = false;
  Dtype computed_in = Dtype::f32;  // the type of the dense weights
  nlohmann::json of_base;          // the base's, if it was stored in the format; else null
  std::vector<std::string> dense;  // the linear layers that are not quantised, and the head
  std::vector<std::string> other_half =
      {};  // modules of a model of texts and images that have only such layers
};

// A tensor of a weight as a file has it, under the weight's name with `suffix` behind it.
struct WrittenPart {
  std::string suffix;  // "": the values
  Dtype dtype;
  std::vector<int64_t> shape;
  at::Tensor bytes;  // on the CPU, contiguous
};

// Quantises one weight on the CPU, piece by piece.
class WeightQuantiser {
 public:
  virtual ~WeightQuantiser() = default;
  // Takes the next values, in any floating type, on the CPU. Each piece but the last has a multiple of
  // WeightFormat::block(). Throws FormatError if one cannot be held.
  virtual void add(const at::Tensor& values) = 0;
  // Returns the result when all values were added. Not to be called twice.
  virtual std::shared_ptr<const WeightSource> finish() = 0;
};

// Tensors of a model's files, by name.
using StoredTensors = std::map<std::string, TensorView>;

// `type` below is that of the values that a weight stands for (WeightSource::scalar_type()), and
// `double_quant` whether its scales are quantised, too; formats without that ignore it.
class WeightFormat {
 public:
  virtual ~WeightFormat() = default;
  virtual const WeightFormatName& name() const = 0;

  // Returns what quantization_config says, which is an object; nullopt if it is of another format. Throws
  // FormatError, naming what is not supported, and what to do.
  virtual std::optional<StoredQuantisation> read_config(const nlohmann::json& stored) const = 0;
  // Returns the quantization_config of a model that is written.
  virtual nlohmann::ordered_json written_config(const WrittenQuantisation& written) const = 0;

  // Returns whether the weight is stored in this format, judged by names and types alone.
  virtual bool is_stored(const StoredTensors& tensors, const std::string& weight) const = 0;
  // Returns the layout of a stored weight. `usual`: what config.json says.
  virtual WeightLayout layout_of(const StoredTensors& tensors, const std::string& weight,
                                 const std::vector<int64_t>& shape, const WeightLayout& usual) const = 0;
  // Returns the names of the tensors that may stand beside the weight's own.
  virtual std::vector<std::string> companions(const std::string& weight) const = 0;
  // Returns the weight; nullopt if it does not fit, after adding to `problems` what is wrong.
  virtual std::optional<StoredWeight> find(const StoredTensors& tensors, const std::string& weight,
                                           const std::vector<int64_t>& shape, const WeightLayout& usual,
                                           std::vector<std::string>& problems) const = 0;
  // Returns the weight made of these tensors, which have the values of stored.parts.
  virtual std::shared_ptr<const WeightSource> open(const StoredWeight& stored,
                                                   const std::vector<at::Tensor>& tensors,
                                                   at::ScalarType type) const = 0;
  // Returns a weight without values; for plans.
  virtual std::shared_ptr<const WeightSource> empty(const std::vector<int64_t>& shape, at::ScalarType type,
                                                    const WeightLayout& layout, at::Device device) const = 0;

  // Returns the layout of weights that are quantised here.
  virtual WeightLayout layout(bool double_quant) const = 0;
  // Returns the number of values at whose multiples pieces for a quantiser may end.
  virtual int64_t block() const = 0;
  // `weight` is its name, for errors.
  virtual std::unique_ptr<WeightQuantiser> quantiser(const std::string& weight,
                                                     const std::vector<int64_t>& shape, at::ScalarType type,
                                                     bool double_quant) const = 0;

  // Returns whether a weight of this format can be written as it is; others are quantised again.
  virtual bool is_written_as_is(const WeightSource& /*weight*/) const { return true; }
  // Returns the tensors of a weight, which is on the CPU and of this format, as a file has them. The first is
  // the largest. `made_from`: the type of the values before they were quantised.
  virtual std::vector<WrittenPart> written_parts(const WeightSource& weight, Dtype made_from) const = 0;
  // Returns a function that says whether the values first, first + 1, ... of a weight are those that it was
  // made from, within a step of the format.
  using Comparison = std::function<bool(int64_t first, const at::Tensor& made_from)>;
  virtual Comparison compared(std::shared_ptr<const WeightSource> weight) const = 0;

  // Returns a sentence on how such weights are multiplied on a device, for the log; "": nothing to say.
  virtual std::string said_on(at::Device /*device*/) const { return ""; }
};

// All of them, in the order of weight_format_names().
std::vector<const WeightFormat*> weight_formats();
// Returns the format that model.quantize names; "": the smallest. Throws ConfigError if there is none.
const WeightFormat& weight_format(const std::string& name);

// Returns the quantization_config; nullopt if there is none. Throws FormatError, naming the method and what
// to do, if no format has it.
std::optional<StoredQuantisation> read_quantization_config(const nlohmann::json& config);

// For tests: one more format, as long as it lives.
class AddedWeightFormat {
 public:
  explicit AddedWeightFormat(const WeightFormat& format);
  ~AddedWeightFormat();
  AddedWeightFormat(const AddedWeightFormat&) = delete;
  AddedWeightFormat& operator=(const AddedWeightFormat&) = delete;
};

}  // namespace trainer
