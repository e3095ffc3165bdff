// A value that can be called as a function.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "text/jinja/value.h"

namespace trainer::jinja {

class Function : public Object {
 public:
  using Body = std::function<Value(const Arguments&)>;
  Function(std::string type_name, Body body) : type_name_(std::move(type_name)), body_(std::move(body)) {}
  std::string type_name() const override { return type_name_; }
  bool callable() const override { return true; }
  Value call(Arguments arguments) override { return body_(arguments); }

 private:
  const std::string type_name_;
  const Body body_;
};

inline Value function(std::string type_name, Function::Body body) {
  return Value(std::shared_ptr<Object>(std::make_shared<Function>(std::move(type_name), std::move(body))));
}

}  // namespace trainer::jinja
