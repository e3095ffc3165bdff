// A further way of storing weights needs its row of weight_formats() and nothing else: it is loaded, planned,
// trained on, exported and merged. The row here has int8 codes with a scale for each row (CodedWeight).
#include "weights/weight_format.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include <ATen/core/grad_mode.h>

#include "trainer/base/error.h"
#include "trainer/export/export_model.h"
#include "trainer/formats/model_directory.h"
#include "trainer/formats/peft.h"
#include "trainer/training/trainer.h"

#include "models/golden.h"
#include "support/coded_weight.h"
#include "support/error_message.h"
#include "support/temporary_directory.h"
#include "training/prepare_model.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using test::CodedWeight;
using test::contains;

class CodedFormat : public WeightFormat {
 public:
  const WeightFormatName& name() const override { return name_; }

  std::optional<StoredQuantisation> read_config(const nlohmann::json& stored) const override {
    if (stored.value("quant_method", "") != "coded") return std::nullopt;
    return StoredQuantisation{};
  }
  nlohmann::ordered_json written_config(const WrittenQuantisation&) const override {
    return {{"quant_method", "coded"}};
  }

  bool is_stored(const StoredTensors& tensors, const std::string& weight) const override {
    return tensors.contains(weight + ".scale");
  }
  WeightLayout layout_of(const StoredTensors&, const std::string&, const std::vector<int64_t>&,
                         const WeightLayout& usual) const override {
    return usual;
  }
  std::vector<std::string> companions(const std::string& weight) const override {
    return {weight + ".scale"};
  }
  std::optional<StoredWeight> find(const StoredTensors& tensors, const std::string& weight,
                                   const std::vector<int64_t>& shape, const WeightLayout&,
                                   std::vector<std::string>& problems) const override {
    TensorView codes = tensors.at(weight), scales = tensors.at(weight + ".scale");
    if (codes.shape != shape) {
      problems.push_back("misshapen: " + weight);
      return std::nullopt;
    }
    codes.shape = {shape[0] * shape[1]};
    scales.shape = {shape[0]};
    return StoredWeight{shape, {codes, scales}, ""};
  }
  std::shared_ptr<const WeightSource> open(const StoredWeight& stored, const std::vector<at::Tensor>& tensors,
                                           at::ScalarType type) const override {
    return made(stored.shape, tensors, type);
  }
  std::shared_ptr<const WeightSource> empty(const std::vector<int64_t>& shape, at::ScalarType type,
                                            const WeightLayout&, at::Device device) const override {
    return made(shape,
                {at::empty(shape, at::dtype(at::kChar).device(device)),
                 at::empty({shape[0], 1}, at::dtype(at::kFloat).device(device))},
                type);
  }

  WeightLayout layout(bool) const override { return {}; }
  int64_t block() const override { return 1; }
  std::unique_ptr<WeightQuantiser> quantiser(const std::string&, const std::vector<int64_t>& shape,
                                             at::ScalarType type, bool) const override {
    class Quantiser : public WeightQuantiser {
     public:
      Quantiser(const CodedFormat& format, const std::vector<int64_t>& shape, at::ScalarType type)
          : format_(format), values_(at::empty(shape, type)) {}
      void add(const at::Tensor& values) override {
        values_.view({-1}).narrow(0, filled_, values.numel()).copy_(values.flatten());
        filled_ += values.numel();
      }
      std::shared_ptr<const WeightSource> finish() override {
        EXPECT_EQ(filled_, values_.numel());
        auto out = std::make_shared<CodedWeight>(values_);
        out->of_format = &format_;
        return out;
      }

     private:
      const CodedFormat& format_;
      at::Tensor values_;
      int64_t filled_ = 0;
    };
    return std::make_unique<Quantiser>(*this, shape, type);
  }

  std::vector<WrittenPart> written_parts(const WeightSource& weight, Dtype) const override {
    const std::vector<at::Tensor> tensors = weight.tensors();
    return {{"", Dtype::i8, tensors[0].sizes().vec(), tensors[0]},
            {".scale", Dtype::f32, tensors[1].sizes().vec(), tensors[1]}};
  }
  Comparison compared(std::shared_ptr<const WeightSource> weight) const override {
    return [weight = std::move(weight)](int64_t first, const at::Tensor& made_from) {
      const int64_t columns = weight->shape()[1];
      const at::Tensor found = weight->rows(first / columns, made_from.numel() / columns, at::kFloat);
      const at::Tensor step = weight->tensors()[1].narrow(0, first / columns, found.size(0));
      return (found - made_from.view_as(found)).abs().le(step).all().item<bool>();
    };
  }

 private:
  std::shared_ptr<const WeightSource> made(const std::vector<int64_t>& shape,
                                           const std::vector<at::Tensor>& tensors,
                                           at::ScalarType type) const {
    CodedWeight weight(at::zeros(shape, type));
    weight.of_format = this;
    return weight.with_storage({tensors.at(0).view(shape), tensors.at(1).view({shape[0], 1})});
  }

  WeightFormatName name_{"coded", "CODED", 8, "8 bits", "write them in 8 bits"};
};

const Quantisation kCoded{.format = "coded"};

class AddedFormat : public testing::Test {
 protected:
  static std::map<std::string, at::Tensor> coded_values(Model& model) {
    std::map<std::string, at::Tensor> values;
    model.for_each_parameter([&](const std::string& name, Parameter& parameter) {
      const WeightSource* source = parameter.value.source();
      if (source != nullptr && source->format() != nullptr) {
        EXPECT_EQ(source->format()->name().name, "coded");
        values[name] = parameter.value.materialize(at::kFloat);
      }
    });
    return values;
  }
  static at::Tensor logits_of(Model& model, const Golden& golden) {
    const at::NoGradGuard no_grad;
    return model.head().logits(model.supervised_states(golden.whole(), ForwardContext{}));
  }
  // The golden's base, exported with codes.
  fs::path exported() {
    ExportRequest request{golden_directory("llama_lora") / "model", directory_ / "coded"};
    request.quantise = kCoded;
    check_ = export_model(request).check;
    return directory_ / "coded";
  }

  CodedFormat format_;
  AddedWeightFormat added_{format_};
  test::TemporaryDirectory directory_;
  std::string check_;
};

TEST_F(AddedFormat, TrainsAsItsValuesDoAndIsPlanned) {
  const Golden coded("llama_lora", at::kFloat, kCoded), dense("llama_lora");
  const std::map<std::string, at::Tensor> values = coded_values(*coded.model);
  EXPECT_EQ(values.size(), 14);  // 7 in each of 2 layers
  dense.model->for_each_parameter([&](const std::string& name, Parameter& parameter) {
    if (values.contains(name)) parameter.value = Weight(values.at(name));
  });
  const auto planned = model_on_meta(coded.directory / "model", at::kFloat, /*train_all=*/false, kCoded);
  planned->for_each_parameter([&](const std::string& name, Parameter& parameter) {
    if (!values.contains(name)) return;
    EXPECT_EQ(parameter.value.nbytes(), values.at(name).numel() + 4 * parameter.shape[0]) << name;
  });
  Config config;
  config.optimizer.learning_rate = 1e-3;
  config.lora.emplace();
  Trainer on_codes(config, *coded.model, at::kCPU, 4), on_values(config, *dense.model, at::kCPU, 4);
  const UpdateCheck check(*coded.model);
  for (int step = 0; step < 2; step++)
    EXPECT_EQ(on_codes.step(coded.batch).loss, on_values.step(dense.batch).loss);
  EXPECT_FALSE(check.after_update(1e-3).empty());
}

TEST_F(AddedFormat, IsExportedAndReadAgain) {
  const fs::path out = exported();
  EXPECT_TRUE(contains(check_, "14 weights in CODED have the model's values within a step")) << check_;
  EXPECT_EQ(read_quantization_config(read_model_config(out))->format, &format_);
  const auto quantised = load_model(golden_directory("llama_lora") / "model",
                                    {at::kCPU, at::kFloat, /*train_all=*/false, kCoded});
  const auto stored = load_model(out, {});
  const auto expected = coded_values(*quantised), found = coded_values(*stored);
  EXPECT_EQ(found.size(), expected.size());
  for (const auto& [name, values] : found) EXPECT_TRUE(values.equal(expected.at(name))) << name;
}

TEST_F(AddedFormat, AnAdapterOnItIsMergedIntoPlainWeights) {
  const fs::path base = exported(), adapter = directory_ / "adapter";
  fs::copy(golden_directory("llama_lora") / "adapter", adapter);
  AdapterConfig config = read_adapter_config(adapter);
  config.base_model_name_or_path = base;
  write_adapter_config(adapter, config);
  const ExportReport report = export_model({adapter, directory_ / "merged"});
  EXPECT_TRUE(contains(report.difference, "the trained model (CODED with the adapter)")) << report.difference;
  const auto merged = load_model(directory_ / "merged", {});
  EXPECT_TRUE(coded_values(*merged).empty());
  const Golden golden("llama_lora", at::kFloat, kCoded);
  EXPECT_LT((logits_of(*merged, golden) - logits_of(*golden.model, golden)).abs().max().item<float>(), 1e-4);
}

TEST(WeightFormats, AnUnknownOneIsRefusedByName) {
  const std::string message = test::error_message<ConfigError>([] { weight_format("fp3"); });
  EXPECT_TRUE(contains(message, "'fp3' is no way of keeping weights; there are nf4, fp8")) << message;
}

}  // namespace
}  // namespace trainer
