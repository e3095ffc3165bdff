#include "text/jinja/expression_parser.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "trainer/base/strings.h"

#include "text/jinja/operators.h"

namespace trainer::jinja {
namespace {

using Type = Token::Type;

constexpr int kDeepestNesting = 100;

struct NestingDepth {
  NestingDepth(int& depth, int line) : depth(depth) {
    if (++depth > kDeepestNesting) throw SyntaxError("the expression is nested too deeply", line);
  }
  ~NestingDepth() { depth--; }
  int& depth;
};

using Compare = bool (*)(const Value&, const Value&);

bool le(const Value& a, const Value& b) { return less(a, b, "<=") || equal(a, b); }

Compare comparison_sign(const std::string& sign) {
  if (sign == "==") return equal;
  if (sign == "!=") return [](const Value& a, const Value& b) { return !equal(a, b); };
  if (sign == "<") return [](const Value& a, const Value& b) { return less(a, b, "<"); };
  if (sign == "<=") return le;
  if (sign == ">") return [](const Value& a, const Value& b) { return less(b, a, ">"); };
  if (sign == ">=") return [](const Value& a, const Value& b) { return less(b, a, ">=") || equal(a, b); };
  return nullptr;
}

std::string described(const Token& token) {
  switch (token.type) {
    case Type::end:
      return "end of template";
    case Type::block_end:
      return "end of statement block";
    case Type::variable_end:
      return "end of print statement";
    case Type::string:
      return concat("'", token.value, "'");
    default:
      return token.value;
  }
}

}  // namespace

void ExpressionParser::unexpected() const { fail(concat("unexpected ", described(current()))); }

bool ExpressionParser::skip_sign(std::string_view sign) {
  if (!is_sign(sign)) return false;
  take();
  return true;
}

bool ExpressionParser::skip_name(std::string_view name) {
  if (!is_name(name)) return false;
  take();
  return true;
}

void ExpressionParser::expect_sign(std::string_view sign) {
  if (!skip_sign(sign)) fail(concat("expected '", sign, "', got ", described(current())));
}

void ExpressionParser::expect_name(std::string_view name) {
  if (!skip_name(name)) fail(concat("expected '", name, "', got ", described(current())));
}

std::string ExpressionParser::any_name() {
  if (current().type != Type::name) fail(concat("expected a name, got ", described(current())));
  return take().value;
}

ExpressionPtr ExpressionParser::expression(bool with_condition) {
  const NestingDepth depth(depth_, current().line);
  return with_condition ? condition() : or_();
}

ExpressionPtr ExpressionParser::condition() {
  int line = current().line;
  ExpressionPtr value = or_();
  if (!is_name("if")) return value;
  auto node = std::make_unique<Conditional>(line, std::move(value));
  while (skip_name("if")) {
    Conditional::Choice choice{line, or_(), nullptr};
    if (skip_name("else")) choice.no = expression();
    node->choices.push_back(std::move(choice));
    line = current().line;
  }
  return node;
}

ExpressionPtr ExpressionParser::logical(Operand operand, const char* word) {
  const int line = current().line;
  Expressions operands;
  do operands.push_back((this->*operand)());
  while (skip_name(word));
  if (operands.size() == 1) return std::move(operands[0]);
  return std::make_unique<Logical>(line, word == std::string_view("and"), std::move(operands));
}

ExpressionPtr ExpressionParser::or_() { return logical(&ExpressionParser::and_, "or"); }

ExpressionPtr ExpressionParser::and_() { return logical(&ExpressionParser::not_, "and"); }

ExpressionPtr ExpressionParser::not_() {
  const NestingDepth depth(depth_, current().line);
  const int line = current().line;
  if (!skip_name("not")) return comparison();
  return std::make_unique<Unary>(
      line, [](const Value& value) { return Value(!value.truth()); }, not_());
}

ExpressionPtr ExpressionParser::comparison() {
  auto node = std::make_unique<Comparison>(current().line, sum());
  while (true) {
    const Compare sign = current().type == Type::sign ? comparison_sign(current().value) : nullptr;
    if (sign) {
      take();
      node->rest.emplace_back(sign, sum());
    } else if (skip_name("in")) {
      node->rest.emplace_back([](const Value& a, const Value& b) { return contains(b, a); }, sum());
    } else if (is_name("not") && ahead().type == Type::name && ahead().value == "in") {
      take();
      take();
      node->rest.emplace_back([](const Value& a, const Value& b) { return !contains(b, a); }, sum());
    } else {
      break;
    }
  }
  return node->rest.empty() ? std::move(node->first) : ExpressionPtr(std::move(node));
}

ExpressionPtr ExpressionParser::binary(
    Operand operand, std::initializer_list<std::pair<const char*, Binary::Operator>> signs) {
  const int line = current().line;
  ExpressionPtr value = (this->*operand)();
  std::unique_ptr<Binary> node;
  while (true) {
    const auto sign = std::ranges::find_if(signs, [&](const auto& known) { return is_sign(known.first); });
    if (sign == signs.end()) return node ? ExpressionPtr(std::move(node)) : std::move(value);
    if (!node) node = std::make_unique<Binary>(line, std::move(value));
    const int at = take().line;
    node->rest.push_back({at, sign->second, (this->*operand)()});
  }
}

ExpressionPtr ExpressionParser::sum() {
  return binary(&ExpressionParser::concatenation, {{"+", add}, {"-", subtract}});
}

ExpressionPtr ExpressionParser::concatenation() {
  const int line = current().line;
  Expressions parts;
  parts.push_back(product());
  while (skip_sign("~")) parts.push_back(product());
  if (parts.size() == 1) return std::move(parts[0]);
  return std::make_unique<Concatenation>(line, std::move(parts));
}

ExpressionPtr ExpressionParser::product() {
  return binary(&ExpressionParser::power_,
                {{"*", multiply}, {"/", divide}, {"//", floor_divide}, {"%", modulo}});
}

// From left to right, unlike Python.
ExpressionPtr ExpressionParser::power_() { return binary(&ExpressionParser::unary, {{"**", power}}); }

ExpressionPtr ExpressionParser::signed_value(bool with_filters) {
  const NestingDepth depth(depth_, current().line);
  const int line = current().line;
  ExpressionPtr value;
  if (is_sign("-") || is_sign("+")) {
    const Token sign = take();
    value = std::make_unique<Unary>(line, sign.value == "-" ? negate : plus, signed_value(false));
  } else {
    value = primary();
  }
  auto chain = std::make_unique<Chain>(line, std::move(value));
  postfix(*chain);
  if (with_filters) filtered(*chain);
  return without_chain(std::move(chain));
}

ExpressionPtr ExpressionParser::name() {
  const Token token = take();
  if (token.value == "true" || token.value == "True")
    return std::make_unique<Constant>(token.line, Value(true));
  if (token.value == "false" || token.value == "False")
    return std::make_unique<Constant>(token.line, Value(false));
  if (token.value == "none" || token.value == "None") return std::make_unique<Constant>(token.line, Value());
  const int id = names_.add(token.value);
  if (name_read_.size() <= static_cast<size_t>(id)) name_read_.resize(static_cast<size_t>(id) + 1);
  name_read_[static_cast<size_t>(id)] = true;
  return std::make_unique<NameLoad>(token.line, id);
}

ExpressionPtr ExpressionParser::primary() {
  const Token token = current();
  switch (token.type) {
    case Type::name:
      return name();
    case Type::string: {
      std::string text;
      while (current().type == Type::string) text += take().value;
      return std::make_unique<Constant>(token.line, text_value(std::move(text)));
    }
    case Type::integer: {
      int64_t number = 0;
      const auto [end, error] =
          std::from_chars(token.value.data(), token.value.data() + token.value.size(), number);
      if (error != std::errc()) fail(concat("the number ", token.value, " is beyond 64 bits"));
      take();
      return std::make_unique<Constant>(token.line, Value(number));
    }
    case Type::real:
      take();
      return std::make_unique<Constant>(token.line, Value(std::strtod(token.value.c_str(), nullptr)));
    default:
      break;
  }
  if (skip_sign("(")) {
    const NestingDepth depth(depth_, token.line);
    ExpressionPtr value = tuple(true, {}, /*may_be_empty=*/true);
    expect_sign(")");
    return value;
  }
  if (is_sign("[")) return list();
  if (is_sign("{")) return dict();
  unexpected();
}

bool ExpressionParser::at_end_of_tuple(std::initializer_list<std::string_view> stops) const {
  return current().type == Type::variable_end || current().type == Type::block_end || is_sign(")") ||
         std::ranges::any_of(stops, [&](std::string_view stop) { return is_name(stop); });
}

ExpressionPtr ExpressionParser::tuple(bool with_condition, std::initializer_list<std::string_view> stops,
                                      bool may_be_empty) {
  const int line = current().line;
  Expressions items;
  bool is_tuple = false;
  while (!at_end_of_tuple(stops)) {
    items.push_back(expression(with_condition));
    if (!skip_sign(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && items.size() == 1) return std::move(items[0]);
  if (!is_tuple && !may_be_empty) fail(concat("expected an expression, got ", described(current())));
  return std::make_unique<Sequence>(line, std::move(items), true);
}

ExpressionPtr ExpressionParser::list() {
  const int line = take().line;
  Expressions items;
  while (!is_sign("]")) {
    items.push_back(expression());
    if (!skip_sign(",")) break;
  }
  expect_sign("]");
  return std::make_unique<Sequence>(line, std::move(items), false);
}

ExpressionPtr ExpressionParser::dict() {
  auto node = std::make_unique<DictDisplay>(take().line);
  while (!is_sign("}")) {
    ExpressionPtr key = expression();
    expect_sign(":");
    node->items.emplace_back(std::move(key), expression());
    if (!skip_sign(",")) break;
  }
  expect_sign("}");
  return node;
}

}  // namespace trainer::jinja
