#include "text/jinja/template.h"

#include <algorithm>
#include <string>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/utf8.h"
#include "text/jinja/expression_parser.h"
#include "text/jinja/globals.h"
#include "text/jinja/lexer.h"
#include "text/jinja/nodes.h"

namespace trainer::jinja {
namespace {

// Parses a template's text into its tree.

struct ParsedTemplate {
  Block body;
  bool has_generation;  // whether it contains {% generation %}
};

using Type = Token::Type;
using Words = std::initializer_list<std::string_view>;

constexpr int kDeepestBlocks = 100;

class Parser : ExpressionParser {
 public:
  Parser(std::vector<Token> tokens, Names& names) : ExpressionParser(std::move(tokens), names) {}

  ParsedTemplate run() {
    Block body = statements({}, 0);
    return {std::move(body), has_generation_};
  }

 private:
  // Reads up to a tag with one of the names in `ends`; that name is then the next token. Without `ends`,
  // reads to the end of the template.
  Block statements(Words ends, int opened) {
    if (++depth_ > kDeepestBlocks) fail("blocks are nested too deeply");
    Block block;
    while (current().type != Type::end) {
      const Token token = take();
      if (token.type == Type::data) {
        block.statements.push_back(std::make_unique<Data>(token.line, Text(token.value)));
      } else if (token.type == Type::variable_begin) {
        block.statements.push_back(std::make_unique<Print>(token.line, tuple(true, {}, false)));
        expect(Type::variable_end, "}}");
      } else {
        if (std::ranges::any_of(ends, [&](std::string_view end) { return is_name(end); })) {
          depth_--;
          return block;
        }
        block.statements.push_back(statement());
        expect(Type::block_end, "%}");
      }
    }
    if (ends.size() > 0) {
      throw SyntaxError(
          concat("the template ends, but '", *ends.begin(), "' is missing for the block opened here"),
          opened);
    }
    depth_--;
    return block;
  }

  // Reads the rest of the block's tag, its body, and the name of the tag that ends it.
  Block body(Words ends, int opened) {
    skip_sign(":");
    expect(Type::block_end, "%}");
    return statements(ends, opened);
  }

  // The same for the body of a function or an assignment, in which `break` cannot end a loop outside.
  Block closed_body(Words ends, int opened) {
    const int loops = std::exchange(loops_, 0);
    Block block = body(ends, opened);
    loops_ = loops;
    take();
    return block;
  }

  void expect(Type type, const char* sign) {
    if (current().type != type) {
      if (current().type == Type::end) fail(concat("expected '", sign, "', but the template ends"));
      unexpected();
    }
    take();
  }

  StatementPtr statement() {
    if (current().type != Type::name) fail("tag name expected");
    const Token tag = take();
    const int line = tag.line;
    if (tag.value == "if") return if_(line);
    if (tag.value == "for") return for_(line);
    if (tag.value == "set") return set(line);
    if (tag.value == "macro") return macro(line);
    if (tag.value == "call") return call_block(line);
    if (tag.value == "with") return with(line);
    if (tag.value == "filter") return filter_block(line);
    if (tag.value == "generation") {
      auto node = std::make_unique<Generation>(line);
      node->body = closed_body({"endgeneration"}, line);
      has_generation_ = true;
      return node;
    }
    if (tag.value == "break" || tag.value == "continue") {
      if (loops_ == 0) throw SyntaxError(concat("'", tag.value, "' stands in no loop"), line);
      return std::make_unique<Jump>(line, tag.value == "break" ? Flow::broken : Flow::continued);
    }
    constexpr std::string_view foreign[] = {"block", "extends",    "include", "import",
                                            "from",  "autoescape", "print"};
    const bool known = std::ranges::find(foreign, tag.value) != std::end(foreign);
    throw SyntaxError(concat(known ? "not supported: the tag '" : "unknown tag '", tag.value, "'"), line);
  }

  StatementPtr if_(int line) {
    auto node = std::make_unique<If>(line);
    ExpressionPtr condition = tuple(false, {}, false);
    while (true) {
      Block block = body({"endif", "elif", "else"}, line);
      node->branches.emplace_back(std::move(condition), std::move(block));
      const std::string ended = take().value;
      if (ended == "elif") {
        condition = tuple(false, {}, false);
        continue;
      }
      if (ended == "else") {
        node->otherwise = body({"endif"}, line);
        take();
      }
      return node;
    }
  }

  StatementPtr for_(int line) {
    auto node = std::make_unique<For>(line);
    node->target = target({"in"}, /*may_be_attribute=*/false);
    expect_name("in");
    node->iterable = tuple(false, {"recursive"}, false);
    if (skip_name("if")) node->condition = expression();
    if (is_name("recursive")) fail("not supported: recursive loops");
    node->loop_name = names_.add("loop");
    loops_++;
    node->body = body({"endfor", "else"}, line);
    loops_--;
    if (take().value == "else") {
      node->otherwise = body({"endfor"}, line);
      take();
    }
    return node;
  }

  // A name, NAME.ATTRIBUTE, a tuple of these, or any of these in parentheses.
  Target target(Words stops, bool may_be_attribute) {
    Target first = single_target(may_be_attribute);
    if (!is_sign(",")) return first;
    Target out;
    out.line = first.line;
    out.parts.emplace().push_back(std::move(first));
    while (skip_sign(",")) {
      const bool ends = current().type == Type::block_end || is_sign("=") || is_sign(")") ||
                        std::ranges::any_of(stops, [&](std::string_view stop) { return is_name(stop); });
      if (ends) break;
      out.parts->push_back(single_target(may_be_attribute));
    }
    return out;
  }

  Target single_target(bool may_be_attribute) {
    if (skip_sign("(")) {
      if (++depth_ > kDeepestBlocks) fail("the brackets are nested too deeply");
      Target inner = target({}, may_be_attribute);
      expect_sign(")");
      depth_--;
      return inner;
    }
    Target out;
    out.line = current().line;
    const std::string name = any_name();
    for (const char* constant : {"true", "false", "none", "True", "False", "None"}) {
      if (name == constant) fail(concat("can't assign to '", name, "'"));
    }
    out.name = names_.add(name);
    if (may_be_attribute && skip_sign(".")) out.attribute = any_name();
    return out;
  }

  StatementPtr set(int line) {
    auto node = std::make_unique<Set>(line);
    node->target = target({}, /*may_be_attribute=*/true);
    if (skip_sign("=")) {
      node->value = tuple(true, {}, false);
      return node;
    }
    node->filters = filters(false);
    node->body = closed_body({"endset"}, line);
    return node;
  }

  StatementPtr with(int line) {
    auto node = std::make_unique<With>(line);
    while (current().type != Type::block_end) {
      if (!node->variables.empty()) expect_sign(",");
      Target name = single_target(false);
      expect_sign("=");
      node->variables.emplace_back(std::move(name), expression());
    }
    node->body = body({"endwith"}, line);
    take();
    return node;
  }

  StatementPtr filter_block(int line) {
    auto node = std::make_unique<FilterBlock>(line);
    node->filters = filters(true);
    node->body = closed_body({"endfilter"}, line);
    return node;
  }

  void parameters(MacroBody& macro) {
    expect_sign("(");
    bool has_default = false;
    while (!is_sign(")")) {
      if (!macro.parameters.empty()) expect_sign(",");
      const int name = names_.add(any_name());
      ExpressionPtr fallback;
      if (skip_sign("=")) {
        fallback = expression();
        has_default = true;
      } else if (has_default) {
        fail("non-default argument follows default argument");
      }
      macro.parameters.emplace_back(name, std::move(fallback));
    }
    expect_sign(")");
  }

  // Reads the body, and which of varargs, kwargs and caller it uses.
  void macro_body(MacroBody& macro, std::string_view end, int line) {
    std::vector<bool> before = std::exchange(name_read_, {});
    macro.body = closed_body({end}, line);
    const auto read = [&](const char* name) {
      const int id = names_.find(name);
      const bool is_parameter =
          std::ranges::any_of(macro.parameters, [&](const auto& p) { return p.first == id; });
      const bool seen =
          id >= 0 && static_cast<size_t>(id) < name_read_.size() && name_read_[static_cast<size_t>(id)];
      return seen && !is_parameter ? id : -1;
    };
    macro.varargs = read("varargs");
    macro.kwargs = read("kwargs");
    macro.caller = read("caller");
    before.resize(std::max(before.size(), name_read_.size()));
    for (size_t i = 0; i < name_read_.size(); i++) before[i] = before[i] || name_read_[i];
    name_read_ = std::move(before);
  }

  StatementPtr macro(int line) {
    auto node = std::make_unique<MacroDefinition>(line);
    node->macro.name = any_name();
    node->name = names_.add(node->macro.name);
    parameters(node->macro);
    macro_body(node->macro, "endmacro", line);
    return node;
  }

  StatementPtr call_block(int line) {
    auto node = std::make_unique<CallBlock>(line);
    node->caller.name = "caller";
    if (is_sign("(")) parameters(node->caller);
    ExpressionPtr called = expression();
    auto* chain = dynamic_cast<Chain*>(called.get());
    if (!chain || !dynamic_cast<Call*>(chain->links.back().get())) throw SyntaxError("expected call", line);
    static_cast<void>(called.release());
    node->call.reset(chain);
    macro_body(node->caller, "endcall", line);
    return node;
  }

  int depth_ = 0, loops_ = 0;
  bool has_generation_ = false;
};

// Adds the template's names to `names`. Throws SyntaxError, also for unsupported tags, filters and tests.
ParsedTemplate parse_template(const std::string& source, Names& names) {
  return Parser(tokenize_template(source), names).run();
}

constexpr const char* kWhatToDo =
    ". It grows without bounds here. Fix this line, or use another template (data.chat_template)";

// The error's text. Values in it may be long; then only its beginning is returned.
std::string brief(const std::exception& error) {
  constexpr size_t kLongest = 1000;
  const std::string text = error.what();
  return text.size() > kLongest ? one_line(text, kLongest) : text;
}

}  // namespace

Template::Template(const std::string& source, std::string where) : source_(source), where_(std::move(where)) {
  if (valid_utf8_prefix(source) != source.size())
    throw of_family(ErrorCode::chat_template,
                    FormatError(concat(where_, ": the chat template is not valid UTF-8")));
  try {
    ParsedTemplate parsed = parse_template(source, names_);
    body_ = std::move(parsed.body);
    has_generation_ = parsed.has_generation;
  } catch (const SyntaxError& error) {
    throw of_family(ErrorCode::chat_template,
                    FormatError(concat(where_, ":", error.line, ": chat template: ", error.what())));
  }
}

bool Template::asks_clock() const { return names_.find(kAsksTheClock) >= 0; }

Text Template::render(const std::vector<std::pair<std::string, Value>>& variables,
                      const Moment& moment) const {
  const Budget budget;
  Rendering rendering(names_, moment);
  Scope& scope = rendering.new_scope(nullptr);
  for (const auto& [name, value] : variables) {
    if (const int id = names_.find(name); id >= 0) scope.set(id, value);
  }
  const auto at = [&] { return concat(where_, ":", rendering.line, ": the chat template "); };
  Text out;
  try {
    body_.execute({rendering, scope}, out);
  } catch (const RaisedByTemplate& error) {
    throw DataError(concat(at(), "refuses the conversation: ", brief(error)));
  } catch (const RenderError& error) {
    throw DataError(concat(at(), "cannot handle the conversation: ", brief(error)));
  } catch (const Unsupported& error) {
    throw of_family(ErrorCode::chat_template,
                    FormatError(concat(at(), "needs what is not supported: ", brief(error))));
  } catch (const OutOfBudget& error) {
    throw of_family(ErrorCode::chat_template, FormatError(concat(at(), "takes ", error.what(), kWhatToDo)));
  } catch (const std::bad_alloc&) {
    throw of_family(ErrorCode::chat_template,
                    FormatError(concat(at(), "takes more memory than there is", kWhatToDo)));
  }
  return out;
}

}  // namespace trainer::jinja
