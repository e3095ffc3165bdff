#include "trainer/weights/module.h"

#include "base/random.h"

namespace trainer {

static std::string path(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

void Module::for_each_parameter(const ParameterVisitor& visit, const std::string& prefix) {
  for (auto& [name, parameter] : parameters_) visit(path(prefix, name), *parameter);
  for (auto& [name, child] : children_) child->for_each_parameter(visit, path(prefix, name));
}

void Module::for_each_module(const ModuleVisitor& visit, const std::string& prefix) {
  visit(prefix, *this);
  for (auto& [name, child] : children_) child->for_each_module(visit, path(prefix, name));
}

void Module::assign_names() {
  for_each_module([](const std::string& name, Module& module) {
    module.name_ = name;
    module.name_key_ = derive(0, name);
  });
}

}  // namespace trainer
