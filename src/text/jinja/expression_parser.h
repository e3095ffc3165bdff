// The part of the parser that reads expressions.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/lexer.h"
#include "text/jinja/nodes.h"

namespace trainer::jinja {

class ExpressionParser {
 public:
  ExpressionParser(std::vector<Token> tokens, Names& names) : names_(names), tokens_(std::move(tokens)) {}

 protected:
  // A whole expression. With `with_condition`, it may be "a if b".
  ExpressionPtr expression(bool with_condition = true);
  // An expression, or several separated by commas: a tuple. It ends before one of the `stops`.
  ExpressionPtr tuple(bool with_condition, std::initializer_list<std::string_view> stops, bool may_be_empty);
  // Filters: "| name(...) | ...". With `inline_first`, the first has no "|" before it.
  std::vector<std::unique_ptr<FilterCall>> filters(bool inline_first);

  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() { return tokens_[current().type == Token::Type::end ? at_ : at_++]; }
  bool is_sign(std::string_view sign) const {
    return current().type == Token::Type::sign && current().value == sign;
  }
  bool is_name(std::string_view name) const {
    return current().type == Token::Type::name && current().value == name;
  }
  bool skip_sign(std::string_view sign);
  bool skip_name(std::string_view name);
  void expect_sign(std::string_view sign);
  void expect_name(std::string_view name);
  // Any name.
  std::string any_name();
  [[noreturn]] void fail(const std::string& what) const { throw SyntaxError(what, current().line); }
  [[noreturn]] void unexpected() const;

  Names& names_;
  std::vector<bool> name_read_;  // by id: whether the name was read since this was last cleared

 private:
  using Operand = ExpressionPtr (ExpressionParser::*)();
  // Operands separated by any of the `signs`.
  ExpressionPtr binary(Operand operand,
                       std::initializer_list<std::pair<const char*, Binary::Operator>> signs);
  ExpressionPtr logical(Operand operand, const char* word);
  ExpressionPtr condition();
  ExpressionPtr or_();
  ExpressionPtr and_();
  ExpressionPtr not_();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power_();
  ExpressionPtr unary() { return signed_value(true); }
  ExpressionPtr signed_value(bool with_filters);
  ExpressionPtr primary();
  void postfix(Chain& chain);
  void filtered(Chain& chain);
  static ExpressionPtr without_chain(std::unique_ptr<Chain> chain);
  ExpressionPtr name();
  ExpressionPtr list();
  ExpressionPtr dict();
  std::unique_ptr<Link> subscript();
  std::unique_ptr<Link> call();
  std::unique_ptr<Link> test();
  std::unique_ptr<FilterCall> filter();
  ArgumentList arguments();
  bool at_end_of_tuple(std::initializer_list<std::string_view> stops) const;

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace trainer::jinja
