// The tree of a template: expressions (evaluated in expressions.cpp), statements (statements.cpp, loop.cpp,
// macro.cpp).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/filters.h"
#include "text/jinja/scope.h"
#include "text/jinja/value.h"

namespace trainer::jinja {

struct Expression {
  explicit Expression(int line) : line(line) {}
  virtual ~Expression() = default;
  virtual Value evaluate(const Frame& frame) const = 0;
  const int line;
};
using ExpressionPtr = std::unique_ptr<Expression>;
using Expressions = std::vector<ExpressionPtr>;

struct Constant : Expression {
  Constant(int line, Value value) : Expression(line), value(std::move(value)) {}
  Value evaluate(const Frame&) const override { return value; }
  const Value value;
};

struct NameLoad : Expression {
  NameLoad(int line, int name) : Expression(line), name(name) {}
  Value evaluate(const Frame& frame) const override;
  const int name;
};

struct Sequence : Expression {
  Sequence(int line, Expressions items, bool tuple)
      : Expression(line), items(std::move(items)), tuple(tuple) {}
  Value evaluate(const Frame& frame) const override;
  Expressions items;
  const bool tuple;
};

struct DictDisplay : Expression {
  using Expression::Expression;
  Value evaluate(const Frame& frame) const override;
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> items;
};

// An operation that follows a value: a subscript, a call, a filter, a test.
struct Link {
  explicit Link(int line) : line(line) {}
  virtual ~Link() = default;
  virtual Value apply(const Frame& frame, const Value& value) const = 0;
  const int line;
};

// A value and the links that follow it. They are a list and not a tree, because there may be thousands.
struct Chain : Expression {
  Chain(int line, ExpressionPtr first) : Expression(line), first(std::move(first)) {}
  Value evaluate(const Frame& frame) const override;
  // Evaluates all but the last link.
  Value evaluate_called(const Frame& frame) const;
  ExpressionPtr first;
  std::vector<std::unique_ptr<Link>> links;
};

struct AttributeLoad : Link {
  AttributeLoad(int line, std::string name) : Link(line), name(std::move(name)) {}
  Value apply(const Frame& frame, const Value& value) const override;
  const std::string name;
};

struct ItemLoad : Link {
  ItemLoad(int line, ExpressionPtr index) : Link(line), index(std::move(index)) {}
  Value apply(const Frame& frame, const Value& value) const override;
  ExpressionPtr index;
};

struct SliceLoad : Link {
  using Link::Link;
  Value apply(const Frame& frame, const Value& value) const override;
  ExpressionPtr parts[3];  // start, stop, step; a part may be missing
};

struct ArgumentList {
  Expressions positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr star, double_star;
  Arguments evaluate(const Frame& frame) const;
};

struct Call : Link {
  using Link::Link;
  Value apply(const Frame& frame, const Value& function) const override {
    return apply_with(frame, function, {});
  }
  // Calls the function with more named arguments.
  Value apply_with(const Frame& frame, const Value& function,
                   const std::vector<std::pair<std::string, Value>>& more) const;
  ArgumentList arguments;
};

struct FilterCall : Link {
  using Link::Link;
  Value apply(const Frame& frame, const Value& input) const override;
  Filter filter = nullptr;
  ArgumentList arguments;
};

struct TestCall : Link {
  using Link::Link;
  Value apply(const Frame& frame, const Value& tested) const override;
  Test test = nullptr;
  bool negated = false;
  ArgumentList arguments;
};

struct Unary : Expression {
  using Operator = Value (*)(const Value&);
  Unary(int line, Operator apply, ExpressionPtr value)
      : Expression(line), apply(apply), value(std::move(value)) {}
  Value evaluate(const Frame& frame) const override;
  const Operator apply;
  ExpressionPtr value;
};

// a + b - c: operators of one precedence, from left to right.
struct Binary : Expression {
  using Operator = Value (*)(const Value&, const Value&);
  struct Operand {
    int line;
    Operator apply;
    ExpressionPtr value;
  };
  Binary(int line, ExpressionPtr first) : Expression(line), first(std::move(first)) {}
  Value evaluate(const Frame& frame) const override;
  ExpressionPtr first;
  std::vector<Operand> rest;
};

struct Concatenation : Expression {
  Concatenation(int line, Expressions parts) : Expression(line), parts(std::move(parts)) {}
  Value evaluate(const Frame& frame) const override;
  Expressions parts;
};

struct Comparison : Expression {
  Comparison(int line, ExpressionPtr first) : Expression(line), first(std::move(first)) {}
  Value evaluate(const Frame& frame) const override;
  ExpressionPtr first;
  std::vector<std::pair<bool (*)(const Value&, const Value&), ExpressionPtr>> rest;
};

// Operands joined by `and`, or by `or`.
struct Logical : Expression {
  Logical(int line, bool is_and, Expressions operands)
      : Expression(line), is_and(is_and), operands(std::move(operands)) {}
  Value evaluate(const Frame& frame) const override;
  const bool is_and;
  Expressions operands;
};

// a if b else c, where a may itself be conditional: a if b if c.
struct Conditional : Expression {
  struct Choice {
    int line;
    ExpressionPtr condition, no;  // `no` may be missing
  };
  Conditional(int line, ExpressionPtr yes) : Expression(line), yes(std::move(yes)) {}
  Value evaluate(const Frame& frame) const override;
  ExpressionPtr yes;
  std::vector<Choice> choices;  // the last one is tested first
};

// The left side of an assignment: a name, NAME.ATTRIBUTE of a namespace, or a tuple of these.
struct Target {
  int line = 0;
  int name = -1;
  std::string attribute;
  std::optional<std::vector<Target>> parts;
  void assign(const Frame& frame, Value value) const;
};

enum class Flow { next, broken, continued };

struct Statement {
  explicit Statement(int line) : line(line) {}
  virtual ~Statement() = default;
  virtual Flow execute(const Frame& frame, Text& out) const = 0;
  const int line;
};
using StatementPtr = std::unique_ptr<Statement>;

struct Block {
  std::vector<StatementPtr> statements;
  Flow execute(const Frame& frame, Text& out) const;
  // Runs the block in its own scope and returns what it writes.
  Text write(const Frame& frame) const;
};

struct Data : Statement {
  Data(int line, Text text) : Statement(line), text(std::move(text)) {}
  Flow execute(const Frame&, Text& out) const override;
  const Text text;
};

struct Print : Statement {
  Print(int line, ExpressionPtr value) : Statement(line), value(std::move(value)) {}
  Flow execute(const Frame& frame, Text& out) const override;
  ExpressionPtr value;
};

struct If : Statement {
  using Statement::Statement;
  Flow execute(const Frame& frame, Text& out) const override;
  std::vector<std::pair<ExpressionPtr, Block>> branches;
  Block otherwise;
};

struct For : Statement {
  using Statement::Statement;
  Flow execute(const Frame& frame, Text& out) const override;
  Target target;
  ExpressionPtr iterable, condition;  // `condition` may be missing
  int loop_name = -1;
  Block body, otherwise;
};

struct Set : Statement {
  using Statement::Statement;
  Flow execute(const Frame& frame, Text& out) const override;
  Target target;
  ExpressionPtr value;  // nullptr: the block is the value
  Block body;
  std::vector<std::unique_ptr<FilterCall>> filters;
};

struct With : Statement {
  using Statement::Statement;
  Flow execute(const Frame& frame, Text& out) const override;
  std::vector<std::pair<Target, ExpressionPtr>> variables;
  Block body;
};

struct FilterBlock : Statement {
  using Statement::Statement;
  Flow execute(const Frame& frame, Text& out) const override;
  std::vector<std::unique_ptr<FilterCall>> filters;
  Block body;
};

// {% generation %}: what the model should learn to write.
struct Generation : Statement {
  using Statement::Statement;
  Flow execute(const Frame& frame, Text& out) const override;
  Block body;
};

struct Jump : Statement {
  Jump(int line, Flow flow) : Statement(line), flow(flow) {}
  Flow execute(const Frame&, Text&) const override { return flow; }
  const Flow flow;
};

// The part that macros and call blocks share.
struct MacroBody {
  std::string name;
  std::vector<std::pair<int, ExpressionPtr>> parameters;  // with their defaults, which may be missing
  // Names that the body reads; -1: it does not read this one, and such arguments are refused.
  int varargs = -1, kwargs = -1, caller = -1;
  Block body;
};

struct MacroDefinition : Statement {
  using Statement::Statement;
  Flow execute(const Frame& frame, Text& out) const override;
  int name = -1;
  MacroBody macro;
};

struct CallBlock : Statement {
  using Statement::Statement;
  Flow execute(const Frame& frame, Text& out) const override;
  std::unique_ptr<Chain> call;  // its last link is a Call
  MacroBody caller;
};

}  // namespace trainer::jinja
