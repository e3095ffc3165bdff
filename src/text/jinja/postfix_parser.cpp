// The part of ExpressionParser that reads what follows a value: subscripts, calls, filters, tests.
#include "trainer/base/strings.h"

#include "text/jinja/expression_parser.h"

namespace trainer::jinja {

using Type = Token::Type;

ExpressionPtr ExpressionParser::without_chain(std::unique_ptr<Chain> chain) {
  return chain->links.empty() ? std::move(chain->first) : ExpressionPtr(std::move(chain));
}

void ExpressionParser::postfix(Chain& chain) {
  while (is_sign(".") || is_sign("[") || is_sign("("))
    chain.links.push_back(is_sign("(") ? call() : subscript());
}

void ExpressionParser::filtered(Chain& chain) {
  while (true) {
    if (skip_sign("|")) {
      chain.links.push_back(filter());
    } else if (is_name("is")) {
      chain.links.push_back(test());
    } else if (is_sign("(")) {
      chain.links.push_back(call());
    } else {
      return;
    }
  }
}

std::unique_ptr<Link> ExpressionParser::subscript() {
  const int line = current().line;
  if (skip_sign(".")) {
    if (current().type == Type::name) return std::make_unique<AttributeLoad>(line, take().value);
    if (current().type != Type::integer) fail("expected name or number");
    return std::make_unique<ItemLoad>(line, primary());
  }
  expect_sign("[");
  ExpressionPtr first = is_sign(":") ? nullptr : expression();
  if (is_sign(",")) fail("a subscript of several parts is not supported");
  if (!is_sign(":")) {
    expect_sign("]");
    return std::make_unique<ItemLoad>(line, std::move(first));
  }
  auto node = std::make_unique<SliceLoad>(line);
  node->parts[0] = std::move(first);
  for (size_t i = 1; i < 3 && skip_sign(":"); i++) {
    if (!is_sign(":") && !is_sign("]")) node->parts[i] = expression();
  }
  expect_sign("]");
  return node;
}

std::unique_ptr<Link> ExpressionParser::call() {
  auto node = std::make_unique<Call>(current().line);
  node->arguments = arguments();
  return node;
}

ArgumentList ExpressionParser::arguments() {
  ArgumentList out;
  expect_sign("(");
  while (!is_sign(")")) {
    if (skip_sign("*")) {
      if (out.star || out.double_star) fail("invalid syntax for function call expression");
      out.star = expression();
    } else if (skip_sign("**")) {
      if (out.double_star) fail("invalid syntax for function call expression");
      out.double_star = expression();
    } else if (current().type == Type::name && ahead().type == Type::sign && ahead().value == "=") {
      if (out.double_star) fail("invalid syntax for function call expression");
      std::string name = take().value;
      take();
      out.named.emplace_back(std::move(name), expression());
    } else {
      if (out.star || out.double_star || !out.named.empty())
        fail("invalid syntax for function call expression");
      out.positional.push_back(expression());
    }
    if (!skip_sign(",")) break;
  }
  expect_sign(")");
  return out;
}

std::unique_ptr<FilterCall> ExpressionParser::filter() {
  auto node = std::make_unique<FilterCall>(current().line);
  const std::string name = any_name();
  node->filter = find_filter(name);
  if (!node->filter) {
    throw SyntaxError(
        concat(is_foreign_filter(name) ? "not supported: the filter '" : "no filter named '", name, "'"),
        node->line);
  }
  if (is_sign("(")) node->arguments = arguments();
  return node;
}

std::vector<std::unique_ptr<FilterCall>> ExpressionParser::filters(bool inline_first) {
  std::vector<std::unique_ptr<FilterCall>> out;
  if (inline_first) out.push_back(filter());
  while (skip_sign("|")) out.push_back(filter());
  return out;
}

std::unique_ptr<Link> ExpressionParser::test() {
  const int line = take().line;
  auto node = std::make_unique<TestCall>(line);
  node->negated = skip_name("not");
  const std::string name = any_name();
  node->test = find_test(name);
  if (!node->test) throw SyntaxError(concat("no test named '", name, "'"), line);
  const auto begins_argument = [&] {
    const Type type = current().type;
    if (type == Type::string || type == Type::integer || type == Type::real || is_sign("[") || is_sign("{"))
      return true;
    return type == Type::name && !is_name("else") && !is_name("or") && !is_name("and");
  };
  if (is_sign("(")) {
    node->arguments = arguments();
  } else if (begins_argument()) {
    if (is_name("is")) fail("You cannot chain multiple tests with is");
    auto argument = std::make_unique<Chain>(current().line, nullptr);
    argument->first = primary();
    postfix(*argument);
    node->arguments.positional.push_back(without_chain(std::move(argument)));
  }
  return node;
}

}  // namespace trainer::jinja
