#include "export/gguf_export.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/generation/generation_config.h"
#include "trainer/text/chat_template.h"
#include "trainer/text/conversation.h"
#include "trainer/text/tokenizer.h"

#include "base/progress.h"
#include "export/gguf_layout.h"
#include "export/gguf_types.h"
#include "export/new_output.h"
#include "models/tensor_views.h"
#include "text/tokenizer/gguf_vocabulary.h"

namespace trainer {

std::filesystem::path chat_directory(const MergedModel& model) {
  return has_chat_template(model.source) ? model.source : model.base;
}

namespace {

GgufType stored_type(const MergedModel& model) {
  switch (model.most_common_dtype()) {
    case Dtype::bf16:
      return GgufType::bf16;
    case Dtype::f16:
      return GgufType::f16;
    default:
      return GgufType::f32;
  }
}

// The token that ends an answer: that of the chat template, or else one that the files name besides the
// tokenizer's own.
std::optional<int32_t> end_of_turn(const std::filesystem::path& tokens, const std::filesystem::path& chat,
                                   const MergedModel& model) {
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(tokens);
  if (const auto chat_template = load_chat_template(chat)) {
    if (const auto end = end_of_turn_token(*chat_template, *tokenizer)) return end;
  }
  std::vector<int32_t> ends = end_tokens(model.source);
  if (ends.empty()) ends = end_tokens(model.base);
  const auto eos = tokenizer->eos_id();
  if (ends.empty() || (eos && std::ranges::find(ends, *eos) != ends.end())) return std::nullopt;
  return ends.front();
}

void add_vocabulary(const MergedModel& model, const GgufLayout& layout, GgufMetadata& out) {
  const int64_t rows = model.plan.tensors.at(model.embedding).base.shape.at(0);
  const std::filesystem::path tokens = has_tokenizer(model.source) ? model.source : model.base;
  const std::filesystem::path chat = chat_directory(model);
  GgufVocabulary vocabulary = read_gguf_vocabulary(tokens, rows);
  if (layout.gemma4_vocabulary) make_gemma4(vocabulary);
  const std::optional<int32_t> end = end_of_turn(tokens, chat, model);
  if (!vocabulary.eos) vocabulary.eos = end;
  const auto add = [&](const char* key, GgufValue value) {
    out.emplace_back(concat("tokenizer.ggml.", key), std::move(value));
  };
  add("model", vocabulary.model);
  add("pre", vocabulary.pre);
  add("tokens", std::move(vocabulary.tokens));
  add("token_type", std::move(vocabulary.types));
  if (vocabulary.model == "gpt2" || vocabulary.model == "gemma4") add("merges", std::move(vocabulary.merges));
  if (!vocabulary.scores.empty()) add("scores", std::move(vocabulary.scores));
  const auto add_id = [&](const char* key, const std::optional<int32_t>& id) {
    if (id) add(key, static_cast<uint32_t>(*id));
  };
  add_id("bos_token_id", vocabulary.bos);
  add_id("eos_token_id", vocabulary.eos);
  if (end != vocabulary.eos) add_id("eot_token_id", end);
  add_id("unknown_token_id", vocabulary.unk);
  add_id("padding_token_id", vocabulary.pad);
  add("add_bos_token", vocabulary.add_bos);
  add("add_eos_token", vocabulary.add_eos);
  if (vocabulary.add_space_prefix) add("add_space_prefix", *vocabulary.add_space_prefix);
  if (vocabulary.remove_extra_spaces) add("remove_extra_whitespaces", *vocabulary.remove_extra_spaces);
  if (!vocabulary.charsmap.empty()) add("precompiled_charsmap", std::move(vocabulary.charsmap));

  std::vector<std::string> others;
  for (auto& [name, text] : chat_template_texts(chat)) {
    if (name != "default") others.push_back(name);
    out.emplace_back(concat("tokenizer.chat_template", name == "default" ? "" : "." + name), std::move(text));
  }
  if (!others.empty()) out.emplace_back("tokenizer.chat_templates", std::move(others));
}

GgufMetadata whole_metadata(const MergedModel& model, const GgufLayout& layout, GgufType type,
                            const std::string& name) {
  GgufMetadata out{{"general.architecture", layout.architecture},
                   {"general.type", std::string("model")},
                   {"general.name", name},
                   {"general.file_type", gguf_file_type(type)},
                   {"general.quantization_version", kGgufQuantizationVersion}};
  out.insert(out.end(), layout.metadata.begin(), layout.metadata.end());
  add_vocabulary(model, layout, out);
  return out;
}

GgufSource rope_source(const std::string& name, const std::vector<float>& factors) {
  return {name, GgufType::f32, {static_cast<int64_t>(factors.size())}, [&factors](std::ostream& out) {
            out.write(reinterpret_cast<const char*>(factors.data()),
                      static_cast<std::streamsize>(factors.size() * sizeof(float)));
          }};
}

bool has_own_head(const MergedModel& model) { return model.plan.tensors.contains(kHead); }

using UseRows = std::function<void(const at::Tensor& rows)>;

// A tensor of the file, and where its values come from.
struct Written {
  std::string name;
  std::vector<int64_t> shape;
  GgufType type;
  std::string made_from;  // what errors call it
  // Calls `use` with the rows, fp32, first to last.
  std::function<void(const UseRows& use)> in_rows;
};

void rows_of_part(const MergedTensor& from, const GgufPart& part, const UseRows& use) {
  int64_t first = 0;  // of the model's rows
  const int64_t begin = part.first_row,
                end = part.rows < 0 ? std::numeric_limits<int64_t>::max() : begin + part.rows;
  from.in_rows(part.unit, [&](const at::Tensor& rows) {
    const int64_t from_here = std::max(begin - first, int64_t{0}),
                  to_here = std::min(end - first, rows.size(0));
    if (from_here < to_here) use(part.in_file(rows.narrow(0, from_here, to_here - from_here)));
    first += rows.size(0);
  });
}

// All tensors that come from the model's.
std::vector<Written> tensors_of(const MergedModel& model, const GgufLayout& layout, GgufType type) {
  std::vector<Written> all;
  std::vector<GgufShape> shapes;
  for (const auto& [name, tensor] : model.plan.tensors) {
    for (const GgufPart& part : layout.parts_of(name)) {
      const std::vector<int64_t> shape = part.shape_in_file(tensor.base.shape);
      shapes.push_back({part.name, shape});
      const auto in_rows = [part, &tensor = tensor](const UseRows& use) { rows_of_part(tensor, part, use); };
      all.push_back({part.name, shape, type, name, in_rows});
    }
  }
  const std::vector<GgufType> types = gguf_types(shapes, type, layout.blocks);
  for (size_t i = 0; i < all.size(); i++) all[i].type = types[i];
  return all;
}

// Writes the tensors behind those in `sources`. Returns the bytes of their values.
int64_t write_tensors(const std::filesystem::path& path, const GgufMetadata& metadata,
                      std::vector<GgufSource> sources, const std::vector<Written>& tensors) {
  int64_t bytes = 0;
  for (const Written& tensor : tensors) {
    bytes += static_cast<int64_t>(gguf_bytes(tensor.type, tensor.shape, tensor.made_from));
    const auto write = [&tensor](std::ostream& out) {
      tensor.in_rows(
          [&](const at::Tensor& rows) { write_gguf_values(rows, tensor.type, tensor.made_from, out); });
    };
    sources.push_back({tensor.name, tensor.type, tensor.shape, write});
  }
  require_space(path.parent_path(), bytes);
  write_gguf(path, metadata, sources);
  return bytes;
}

}  // namespace

int64_t write_gguf_model(const MergedModel& model, std::optional<GgufType> wanted, const std::string& name,
                         const std::filesystem::path& path) {
  const GgufLayout layout = gguf_layout(model.config, has_own_head(model));
  const GgufType type = wanted.value_or(stored_type(model));
  if (layout.sliding_window > 0) {
    log::warning(concat("config.json: sliding_window ", layout.sliding_window,
                        " is written, but llama.cpp ignores it for this architecture: with more tokens than "
                        "that, its results differ"));
  }
  std::vector<GgufSource> sources;
  for (const auto& [tensor_name, factors] : layout.rope_factors)
    sources.push_back(rope_source(tensor_name, factors));
  const std::vector<Written> tensors = tensors_of(model, layout, type);
  return write_tensors(path, whole_metadata(model, layout, type, name), std::move(sources), tensors);
}

namespace {

[[noreturn]] void fail_check(const std::string& what) {
  throw of_family(ErrorCode::export_check, FormatError(what));
}

// Throws unless the tensor in the file has the model's values.
void check_tensor(const Written& expected, const GgufFile& file, const std::filesystem::path& path) {
  const auto found = file.tensors.find(expected.name);
  const std::string where = concat(path.string(), ": tensor '", expected.name, "'");
  if (found == file.tensors.end()) fail_check(concat(where, " is missing in the written file"));
  const GgufTensor& written = found->second;
  int64_t first = 0;
  bool same = written.shape == expected.shape && written.type == expected.type;
  expected.in_rows([&](const at::Tensor& rows) {
    same = same && agree_in_gguf(read_gguf_values(written, first, rows.size(0)), rows, written.type);
    first += rows.size(0);
  });
  if (!same)
    fail_check(concat(where, " differs from what was written when it is read again; is the disk damaged?"));
}

}  // namespace

std::string check_gguf_model(const MergedModel& model, std::optional<GgufType> wanted,
                             const std::filesystem::path& path) {
  const at::NoGradGuard no_grad;
  const GgufFile file = read_gguf(path);
  const GgufLayout layout = gguf_layout(model.config, has_own_head(model));
  const std::vector<Written> tensors = tensors_of(model, layout, wanted.value_or(stored_type(model)));
  std::map<std::string, int64_t> count;
  Progress shown("reading the file again: tensors", std::ssize(tensors));
  for (const Written& tensor : tensors) {
    shown.add();
    check_tensor(tensor, file, path);
    count[gguf_type_name(tensor.type)]++;
  }
  const size_t expected = tensors.size() + layout.rope_factors.size();
  if (file.tensors.size() != expected)
    fail_check(
        concat(path.string(), ": has ", file.tensors.size(), " tensors, but ", expected, " were written"));
  std::vector<std::string> parts;
  for (const auto& [type, n] : count) parts.push_back(concat(n, " in ", type));
  return concat("read again from disk, all ", tensors.size(), " tensors have the model's values (",
                join(parts), ")");
}

namespace {

[[noreturn]] void refuse(const std::filesystem::path& source, const std::string& what) {
  throw FormatError(
      concat(source.string(), ": ", what,
             ", which no adapter in GGUF can hold; export the merged model (without --adapter)"));
}

void check(const MergedModel& model) {
  for (const auto& [name, tensor] : model.plan.tensors) {
    if (tensor.magnitude.defined()) refuse(model.source, "the adapter is a DoRA");
    if (tensor.embedding) refuse(model.source, concat("the adapter changes the embedding '", name, "'"));
    if (tensor.added.defined()) refuse(model.source, concat("the adapter changes the bias '", name, "'"));
  }
  if (model.plan.replaced > 0)
    refuse(model.source, "the adapter holds whole weights (modules_to_save, biases)");
  if (model.plan.untied) refuse(model.source, "the adapter gives the head a weight of its own");
}

// Returns alpha: readers scale B A by alpha / rank.
double alpha_of(const MergedTensor& tensor) { return tensor.scale * static_cast<double>(tensor.a.size(0)); }

struct AdapterTensors {
  double alpha = 0;
  std::vector<Written> all;  // sorted by their names

  void add(const std::string& name, const at::Tensor& values, GgufType wanted) {
    const std::vector<int64_t> shape = values.sizes().vec();
    const GgufType type = gguf_types({{name, shape}}, wanted, 0).front();
    all.push_back({name, shape, type, name, [values](const UseRows& use) { use(values); }});
  }
};

AdapterTensors adapter_of(const MergedModel& model, GgufType wanted) {
  check(model);
  const GgufLayout layout = gguf_layout(model.config, has_own_head(model));
  AdapterTensors out;
  for (const auto& [name, tensor] : model.plan.tensors) {
    if (!tensor.a.defined()) continue;
    if (out.all.empty()) out.alpha = alpha_of(tensor);
    const double rest = out.alpha == 0 ? 1 : alpha_of(tensor) / out.alpha;
    for (const GgufPart& part : layout.parts_of(name)) {
      const at::Tensor b = part.b_in_file(tensor.b);
      out.add(part.name + ".lora_a", part.a_in_file(tensor.a), wanted);
      out.add(part.name + ".lora_b", rest == 1 ? b : b * rest, wanted);
    }
  }
  if (out.all.empty()) refuse(model.source, "the adapter changes nothing");
  std::ranges::sort(out.all, {}, &Written::name);
  return out;
}

}  // namespace

int64_t write_gguf_adapter(const MergedModel& model, GgufType wanted, const std::string& name,
                           const std::filesystem::path& path) {
  const at::NoGradGuard no_grad;
  const AdapterTensors tensors = adapter_of(model, wanted);
  const GgufMetadata metadata{
      {"general.architecture", gguf_layout(model.config, has_own_head(model)).architecture},
      {"general.type", std::string("adapter")},
      {"general.name", name},
      {"general.file_type", gguf_file_type(wanted)},
      {"general.quantization_version", kGgufQuantizationVersion},
      {"adapter.type", std::string("lora")},
      {"adapter.lora.alpha", static_cast<float>(tensors.alpha)}};
  return write_tensors(path, metadata, {}, tensors.all);
}

std::string check_gguf_adapter(const MergedModel& model, GgufType wanted, const std::filesystem::path& path) {
  const at::NoGradGuard no_grad;
  const AdapterTensors tensors = adapter_of(model, wanted);
  const GgufFile file = read_gguf(path);
  for (const Written& tensor : tensors.all) check_tensor(tensor, file, path);
  return concat("read again from disk, all ", tensors.all.size(), " tensors have the adapter's values");
}

}  // namespace trainer
