// What other trainers say of the services that get the metrics becomes observe.report_to.
#include <algorithm>
#include <cctype>

#include "trainer/base/strings.h"

#include "base/text.h"
#include "config/import_settings.h"

namespace trainer::config {
namespace {

constexpr const char* kKey = "observe.report_to";

bool is_ours(const std::string& service) {
  return service == "wandb" || service == "mlflow" || service == "trackio";
}

// wandb_project -> WANDB_PROJECT
std::string variable_of(std::string name) {
  std::ranges::transform(name, name.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return name;
}

// A key of this service is its name, or begins with it: use_wandb, wandb_project, mlflow_tracking_uri.
void take_keys_of(const std::string& service, GivenKeys& keys, const std::string& name,
                  ImportedSettings& settings) {
  const auto value = keys.take_text(name);
  if (!value || !is_true(YAML::Node(*value))) return;
  import_service(service, name, settings);
  if (name.starts_with(service + "_"))
    settings.leave_out(name, concat("the service reads it from its environment: export ", variable_of(name),
                                    "=", *value, " before the run (docs/observing.md)"));
}

}  // namespace

void import_service(const std::string& service, const std::string& from, ImportedSettings& settings) {
  const std::string name = lower_case(service);
  if (name.empty() || name == "none" || name == "disk" || name == "stdout") return;
  if (name == "tensorboard") {
    if (!settings.has("observe.tensorboard")) settings.set("observe.tensorboard", "true", from);
    return;
  }
  if (!is_ours(name)) {
    settings.leave_out(concat(from, ": ", service),
                       concat(kKey, " may be wandb, mlflow or trackio; metrics.jsonl has all numbers"));
    return;
  }
  if (!settings.has(kKey)) return settings.set_list(kKey, {name}, from);
  std::vector<std::string> services = texts_of(YAML::Load(settings.value_of(kKey)));
  if (std::ranges::find(services, name) != services.end()) return;
  services.push_back(name);
  settings.set_list(kKey, services, from);
}

namespace to {

void services(GivenKeys& keys, Name name, Name, ImportedSettings& settings) {
  const auto value = keys.take(name);
  if (!value) return;
  for (const std::string& service : texts_of(*value)) import_service(service, name, settings);
}

void wandb(GivenKeys& keys, Name name, Name, ImportedSettings& settings) {
  take_keys_of("wandb", keys, name, settings);
}

void mlflow(GivenKeys& keys, Name name, Name, ImportedSettings& settings) {
  take_keys_of("mlflow", keys, name, settings);
}

}  // namespace to
}  // namespace trainer::config
