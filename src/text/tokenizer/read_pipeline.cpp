#include "text/tokenizer/read_pipeline.h"

#include <algorithm>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

namespace trainer {
namespace {

void read_template(const JsonAt& json, Pipeline& out) {
  const JsonAt single = json.at("single"), special_tokens = json.at("special_tokens");
  std::vector<int32_t> before, behind;
  bool text_seen = false;
  for (size_t i = 0; i < single.array().size(); i++) {
    const JsonAt part = single.item(i);
    part.require_known({"Sequence", "SpecialToken"});
    if (part.value.contains("Sequence")) {
      if (text_seen || part.at("Sequence").at("id").string() != "A")
        part.fail("one Sequence 'A' is expected");
      text_seen = true;
      continue;
    }
    const JsonAt ids = special_tokens.at(part.at("SpecialToken").at("id").string()).at("ids");
    for (size_t j = 0; j < ids.array().size(); j++) (text_seen ? behind : before).push_back(ids.item(j).id());
  }
  if (!text_seen) single.fail("Sequence 'A' is missing");
  out.prefix.insert(out.prefix.begin(), before.begin(), before.end());
  out.suffix.insert(out.suffix.end(), behind.begin(), behind.end());
}

void read_post_processor(const JsonAt& json, Pipeline& out) {
  if (json.is_null()) return;
  const std::string type = json.at("type").string();
  if (type == "ByteLevel") return;  // affects offsets only
  if (type == "TemplateProcessing") return read_template(json, out);
  if (type == "RobertaProcessing" || type == "BertProcessing") {
    out.prefix.insert(out.prefix.begin(), json.at("cls").item(1).id());
    out.suffix.push_back(json.at("sep").item(1).id());
    return;
  }
  if (type != "Sequence") refuse_type(json);
  const JsonAt list = json.at("processors");
  for (size_t i = 0; i < list.array().size(); i++) read_post_processor(list.item(i), out);
}

// The model's embedding has no row for any other id.
void check_ids(const std::vector<int32_t>& ids, const Pipeline& pipeline, const JsonAt& json) {
  const auto size =
      std::max(static_cast<int32_t>(pipeline.names.size()), pipeline.added_tokens.largest_id() + 1);
  for (const int32_t id : ids) {
    if (id >= size) json.fail(concat("adds the id ", id, ", but there are only ", size, " tokens"));
  }
}

void read_added_tokens(const JsonAt& json, Pipeline& out) {
  std::vector<std::pair<int32_t, AddedToken>> tokens;
  for (size_t i = 0; i < json.array().size(); i++) {
    const JsonAt item = json.item(i);
    item.require_known({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    tokens.emplace_back(item.at("id").id(), AddedToken{.content = item.at("content").string(),
                                                       .special = item.at("special").boolean(),
                                                       .single_word = item.at("single_word").boolean(),
                                                       .lstrip = item.at("lstrip").boolean(),
                                                       .rstrip = item.at("rstrip").boolean(),
                                                       .normalized = item.at("normalized").boolean()});
  }
  std::ranges::stable_sort(tokens, {}, &std::pair<int32_t, AddedToken>::first);
  const auto size = static_cast<int32_t>(out.vocabulary.size());
  for (const auto& [id, token] : tokens)
    out.added_tokens.add(token, out.find(token.content), size, id, json.where);
}

}  // namespace

Pipeline read_pipeline(const std::filesystem::path& path) {
  const nlohmann::json file = read_json(path);
  const JsonAt json{file, path.string() + ":"};
  // truncation and padding are the settings of an earlier call; the default call overrides them.
  json.require_known({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                      "post_processor", "decoder", "model"});
  Pipeline out;
  read_normalizer(json.get("normalizer"), out.normalizer);
  const bool byte_level = read_pre_tokenizer(json.get("pre_tokenizer"), out.pre_tokenizer);
  read_model(json.at("model"), byte_level, out);
  read_decoder(json.get("decoder"), out.decoder);
  if (!json.get("added_tokens").is_null()) read_added_tokens(json.at("added_tokens"), out);
  read_post_processor(json.get("post_processor"), out);
  for (const auto* ids : {&out.prefix, &out.suffix}) check_ids(*ids, out, json.get("post_processor"));
  return out;
}

}  // namespace trainer
