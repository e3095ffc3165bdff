// Variables while a template renders.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/jinja/moment.h"
#include "text/jinja/value.h"

namespace trainer::jinja {

// Numbers the names of a template.
class Names {
 public:
  int add(const std::string& name) {
    const auto [place, added] = ids_.emplace(name, static_cast<int>(names_.size()));
    if (added) names_.push_back(name);
    return place->second;
  }
  // -1: the template has no such name.
  int find(const std::string& name) const {
    const auto found = ids_.find(name);
    return found == ids_.end() ? -1 : found->second;
  }
  const std::string& operator[](int id) const { return names_[static_cast<size_t>(id)]; }

 private:
  std::unordered_map<std::string, int> ids_;
  std::vector<std::string> names_;
};

// Scopes nest like the template's blocks, not like calls: a macro sees the variables around its definition,
// with the values that they have when it is called.
class Scope {
 public:
  explicit Scope(const Scope* outer) : outer_(outer) {}

  const Value* find(int name) const {
    for (const Scope* scope = this; scope; scope = scope->outer_) {
      Budget::spend(scope->variables_.size() / 4);
      for (const auto& [id, value] : scope->variables_) {
        if (id == name) return &value;
      }
    }
    return nullptr;
  }
  void set(int name, Value value) {
    Budget::spend(variables_.size() / 4);
    for (auto& [id, old] : variables_) {
      if (id == name) {
        old = std::move(value);
        return;
      }
    }
    variables_.emplace_back(name, std::move(value));
  }

 private:
  const Charge charge_{160};
  const Scope* outer_;
  std::vector<std::pair<int, Value>> variables_;
};

// One rendering.
struct Rendering {
  Rendering(const Names& names, const Moment& moment) : names(names), moment(moment) {}

  const Names& names;
  const Moment& moment;
  int line = 1;   // the line that is being evaluated, for messages
  int depth = 0;  // macros that are being called
  Origin turn;    // the origin of what the template itself writes now
  // In a loop whose items are not messages, {% set message = messages[i] %} begins a message's turn.
  bool turn_by_set = false;
  std::vector<std::unique_ptr<Scope>> scopes;
  size_t macros = 0;  // macros that were made; one may outlive its block, and it reads the block's scopes

  // Begins the turn of a message, if the value is a message. Returns whether it is.
  bool enter(const Value& value) {
    if (!value.is(Kind::dict) || !value.dict().message()) return false;
    turn = Origin(*value.dict().message(), Origin::Part::written);
    return true;
  }

  Scope& new_scope(const Scope* outer) { return *scopes.emplace_back(std::make_unique<Scope>(outer)); }
};

// The context in which an expression is evaluated or a statement is executed.
struct Frame {
  Rendering& rendering;
  Scope& scope;

  // Sets the line that messages name.
  void at(int line) const {
    rendering.line = line;
    Budget::spend(8);
  }
};

// A frame with its own scope. The scope ends with the frame unless a macro was defined in it.
class InnerFrame {
 public:
  explicit InnerFrame(const Frame& outer)
      : rendering_(outer.rendering),
        scopes_(rendering_.scopes.size()),
        macros_(rendering_.macros),
        frame_{rendering_, rendering_.new_scope(&outer.scope)} {}
  ~InnerFrame() {
    if (rendering_.macros == macros_) rendering_.scopes.resize(scopes_);
  }
  InnerFrame(const InnerFrame&) = delete;
  InnerFrame& operator=(const InnerFrame&) = delete;
  operator const Frame&() const { return frame_; }
  const Frame* operator->() const { return &frame_; }

 private:
  Rendering& rendering_;
  const size_t scopes_, macros_;
  const Frame frame_;
};

}  // namespace trainer::jinja
