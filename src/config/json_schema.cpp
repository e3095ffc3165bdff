// configs/schema.json: what editors complete and check with (JSON Schema, draft 7).
#include <nlohmann/json.hpp>

#include "trainer/config/load.h"

#include "config/reference.h"
#include "config/schema.h"
#include "config/value.h"

namespace trainer {
namespace config {
namespace {

using Json = nlohmann::ordered_json;

Json text_schema() { return {{"type", "string"}}; }
Json list_schema() { return {{"type", "array"}, {"items", text_schema()}}; }
Json map_schema(const char* type) {
  return {{"type", {"object", "null"}}, {"additionalProperties", {{"type", type}}}};
}

Json sources_schema() {
  const Json weight{{"type", "number"}, {"exclusiveMinimum", 0}};
  const Json weighted{{"type", "object"},
                      {"additionalProperties", false},
                      {"required", {"path"}},
                      {"properties", {{"path", text_schema()}, {"weight", weight}, {"loss_weight", weight}}}};
  const Json list{{"type", "array"}, {"items", {{"anyOf", {text_schema(), weighted}}}}};
  return {text_schema(), weighted, list, {{"type", "null"}}};
}

// The type alone, without bounds.
Json type_schema(const Key& key) {
  if (!key.choices.empty()) return {{"type", "string"}, {"enum", key.choices}};
  Config config;
  const Field field = key.field(config);
  if (std::holds_alternative<bool*>(field)) return {{"type", "boolean"}};
  if (std::holds_alternative<int64_t*>(field)) return {{"type", "integer"}};
  if (std::holds_alternative<double*>(field)) return {{"type", "number"}};
  if (std::holds_alternative<std::optional<int64_t>*>(field)) return {{"type", {"integer", "null"}}};
  if (std::holds_alternative<std::optional<double>*>(field)) return {{"type", {"number", "null"}}};
  if (std::holds_alternative<std::string*>(field)) {
    return may_be_empty(key) ? Json{{"type", {"string", "null"}}} : text_schema();
  }
  if (std::holds_alternative<std::vector<int64_t>*>(field)) {
    const Json integer{{"type", "integer"}};
    return {{"anyOf", {integer, {{"type", "array"}, {"items", integer}}, {{"type", "null"}}}}};
  }
  if (std::holds_alternative<std::pair<double, double>*>(field))
    return {{"type", "array"}, {"items", {{"type", "number"}}}, {"minItems", 2}, {"maxItems", 2}};
  const Json automatic{{"const", "auto"}}, fit_or_auto{{"enum", {"fit", "auto"}}};
  if (std::holds_alternative<CountOrAuto*>(field)) return {{"anyOf", {{{"type", "integer"}}, fit_or_auto}}};
  const Json all{{"const", "all"}};
  if (std::holds_alternative<CountOrAll*>(field)) return {{"anyOf", {{{"type", "integer"}}, all}}};
  if (std::holds_alternative<Recompute*>(field)) {
    const Json words{{"enum", {"fit", "auto", "light"}}};
    return {{"anyOf", {{{"type", "boolean"}}, {{"type", "integer"}}, words}}};
  }
  if (std::holds_alternative<BoolOrAuto*>(field)) return {{"anyOf", {{{"type", "boolean"}}, automatic}}};
  if (std::holds_alternative<Offload*>(field)) {
    const Json part{{"enum", {"optimizer", "weights", "activations"}}};
    return {{"anyOf", {automatic, part, {{"type", "array"}, {"items", part}}, {{"type", "null"}}}}};
  }
  if (std::holds_alternative<NumberMap<int64_t>*>(field)) return map_schema("integer");
  if (std::holds_alternative<NumberMap<double>*>(field)) return map_schema("number");
  if (std::holds_alternative<std::vector<DataSource>*>(field)) return {{"anyOf", sources_schema()}};
  const Json share{{"type", "number"}, {"exclusiveMinimum", 0}, {"exclusiveMaximum", 1}};
  if (std::holds_alternative<EvalData*>(field))
    return {{"anyOf", {share, text_schema(), list_schema(), {{"type", "null"}}}}};
  return {{"anyOf", {text_schema(), list_schema(), {{"type", "null"}}}}};
}

Json default_as_json(const Key& key) {
  const std::string value = default_as_yaml(key);
  const YAML::Node node = YAML::Load(value);
  if (node.IsMap()) return Json::object();
  Config config;
  if (std::holds_alternative<std::pair<double, double>*>(key.field(config)))
    return node.as<std::vector<double>>();
  if (node.IsSequence()) return node.as<std::vector<std::string>>();
  if (takes_text(key) || !key.choices.empty() || value == "auto" || value == "fit") return node.Scalar();
  return Json::parse(value);
}

Json key_schema(const Key& key) {
  Json schema = type_schema(key);
  schema["description"] =
      (key.unit.empty() ? key.help : key.help + " In " + key.unit + ".") + dependence(key);
  schema["default"] = default_as_json(key);
  if (key.minimum) schema[key.above_minimum ? "exclusiveMinimum" : "minimum"] = *key.minimum;
  if (key.maximum) schema[key.below_maximum ? "exclusiveMaximum" : "maximum"] = *key.maximum;
  if (!key.pattern.empty()) schema["pattern"] = key.pattern;
  return schema;
}

Json section_schema(const Section& section) {
  Json properties = Json::object();
  for (const Key& key : section.keys) properties[key.name] = key_schema(key);
  return {{"type", {"object", "null"}},
          {"description", section.help},
          {"additionalProperties", false},
          {"properties", properties}};
}

}  // namespace
}  // namespace config

void write_json_schema(std::ostream& out) {
  using config::Json;
  Json properties = Json::object();
  properties["extends"] = {
      {"anyOf", {config::text_schema(), config::list_schema(), {{"type", "null"}}}},
      {"description", "Files to load first: a path or a list of paths, relative to this file."}};
  for (const config::Section& section : config::schema()) {
    if (section.name.empty()) {
      for (const config::Key& key : section.keys) properties[key.name] = config::key_schema(key);
    } else {
      properties[section.name] = config::section_schema(section);
    }
  }
  const Json schema{{"$schema", "http://json-schema.org/draft-07/schema#"},
                    {"title", "Configuration of trainer"},
                    {"type", "object"},
                    {"additionalProperties", false},
                    {"properties", properties}};
  out << schema.dump(2) << "\n";
}

}  // namespace trainer
