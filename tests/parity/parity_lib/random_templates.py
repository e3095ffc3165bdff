"""Random templates, made of the constructs that chat templates use."""

TEXTS = ["''", "'abc'", "'Hello World'", "'a,b,,c'", "'  pad '", "'é ß Σ'", "'x\\ny\\n'", "'%s-%s'", "'{}:{}'", "messages[0].role",
         "messages[-1]['content']", "bos_token", "'ΑΣ'", "'<b>&'", "'1_0'", "'3.7'", "'12'", "'aXbXc'", "'o\\'q'"]
NUMBERS = ["0", "1", "2", "-3", "7", "1.5", "2.0", "-0.25", "1e3", "loop_count", "messages|length", "true", "10 // 3"]
LISTS = ["[]", "[1, 2, 3]", "['b', 'A', 'c']", "[3, 1.5, true]", "messages", "range(4)", "(1, 'x')", "'a b c'.split()", "[[1, 2], [3]]",
         "messages|map(attribute='role')|list", "d.values()|list", "[none, 0, '']"]
DICTS = ["{}", "{'a': 1, 'b': [1, none]}", "d", "messages[0]", "{'x': {'y': 'z'}, 1: 'int'}", "dict(a=1, b='q')"]
OTHERS = ["none", "missing", "true", "false", "d.missing", "messages[99]", "ns", "undefined_thing"]

TEXT_METHODS = ["strip()", "lstrip()", "rstrip('c ')", "split(',')", "split()", "rsplit('X', 1)", "split('X', 1)", "splitlines()", "startswith('a')",
                "endswith(('c', 'd'))", "replace('a', 'zz')", "replace('X', '', 1)", "upper()", "lower()", "title()", "capitalize()", "find('b')",
                "rfind('X')", "index('z')", "count('X')", "join(['p', 'q'])", "join(messages|map(attribute='role'))", "format(1, 'x')",
                "zfill(6)", "center(9, '*')", "ljust(8)", "removeprefix('a')", "removesuffix('c')", "partition('X')", "isdigit()", "isalpha()",
                "isupper()", "islower()", "isspace()", "istitle()", "swapcase()", "casefold()", "isalnum()", "splitlines(true)", "strip(none)", "encode",
                "rpartition(',')", "startswith('b', 1)", "find('b', 1, 3)", "split(none, 1)", "rsplit(none, 1)"]
DICT_METHODS = ["items()", "keys()", "values()|list", "get('a')", "get('zz', 'dflt')", "items()|list", "copy()", "update({})", "a", "b[0]", "x.y", "get"]
LIST_METHODS = ["index(1)", "count(1)", "append(1)", "copy()", "pop()", "0", "foo"]
FILTERS = ["trim", "length", "count", "tojson", "tojson(indent=2)", "tojson(ensure_ascii=true)", "tojson(sort_keys=true)", "tojson(separators=(',', ':'))",
           "join", "join(', ')", "join('-', attribute='role')", "upper", "lower", "title", "capitalize", "replace('a', 'b')", "replace('', '.')", "default('D')",
           "default('D', true)", "d", "first", "last", "list", "items|list", "map('upper')|list", "map(attribute='role')|list",
           "map(attribute='zz', default='-')|list", "select|list", "select('string')|list", "select('gt', 1)|list", "reject('none')|list", "selectattr('role')|list",
           "selectattr('role', 'equalto', 'user')|list", "rejectattr('role', 'eq', 'user')|list", "string", "int", "int(5)", "float", "float(2.5)", "abs",
           "safe", "sort", "sort(reverse=true)", "sort(attribute='role')|map(attribute='role')|list", "unique|list", "round", "round(1)", "round(2, 'ceil')", "round(method='floor')",
           "dictsort", "dictsort(by='value')", "indent", "indent(2)", "indent(2, true)", "indent(2, true, true)", "indent('> ')", "reverse", "reverse|list", "min", "max",
           "sum", "sum(start=10)", "batch(2)|list", "batch(2, 'x')|list", "slice(2)|list", "center(11)", "truncate(6)", "truncate(5, true, '..', 0)", "wordcount", "escape", "e",
           "format(1, 2)", "attr('x')", "trim('a')", "map('int')|sum", "map('default', 'u')|join", "int|string", "list|length"]
TESTS = ["defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number", "integer", "float", "boolean", "true", "false", "callable",
         "odd", "even", "divisibleby 3", "divisibleby(2)", "equalto 1", "eq('abc')", "in [1, 'abc']", "in 'abc'", "ne none", "gt 1", "lt(2)", "lower", "upper",
         "ge 1", "le 0", "sameas none", "escaped", "filter", "test", "greaterthan 2"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
INDICES = ["0", "1", "-1", "5", "'a'", "'role'", "'x'", "1.0", "true"]
SLICES = ["1:", ":1", ":-1", "::-1", "::2", "1:3", "-2:", "none:none", "3:1", "-1::-2", "-9:9", "ns.a:"]


def expression(draw, depth=0):
    if depth > 3 or draw.random() < 0.18:
        return draw.choice(draw.choice([TEXTS, TEXTS, NUMBERS, LISTS, DICTS, OTHERS]))
    kind = draw.randrange(12)
    if kind == 0:
        return f"({expression(draw, depth + 1)} {draw.choice(OPERATORS)} {expression(draw, depth + 1)})"
    if kind == 1:
        return f"({expression(draw, depth + 1)} if {expression(draw, depth + 1)} else {expression(draw, depth + 1)})"
    if kind == 2:
        return f"({draw.choice(['not ', '-', '+', ''])}{expression(draw, depth + 1)})"
    if kind == 3:
        return f"({draw.choice(TEXTS)}).{draw.choice(TEXT_METHODS)}"
    if kind == 4:
        return f"({draw.choice(DICTS)}).{draw.choice(DICT_METHODS)}"
    if kind == 5:
        return f"({draw.choice(LISTS)}).{draw.choice(LIST_METHODS)}"
    if kind == 6:
        return f"({expression(draw, depth + 1)})[{draw.choice(INDICES)}]"
    if kind == 7:
        return f"({expression(draw, depth + 1)}) is {draw.choice(['', 'not '])}{draw.choice(TESTS)}"
    if kind == 8:
        return f"({draw.choice(TEXTS + [of for of in LISTS if of != 'range(4)'])})[{draw.choice(SLICES)}]"
    if kind == 9:
        return f"[{expression(draw, depth + 1)}, {expression(draw, depth + 1)}]"
    of_texts = draw.random() < 0.4
    value = draw.choice(TEXTS + LISTS) if of_texts else expression(draw, depth + 1)
    return f"({value})|{draw.choice(FILTERS)}"


BLANKS = ["", "", " ", "\n", "\n  ", "  \n", "\n\n", " text ", "\n    text\n", "é", "\t\n"]


def tag(draw, text):
    return f"{{%{draw.choice(['', '', '', '-', '+'])} {text} {draw.choice(['', '', '', '-', '+'])}%}}"


def statements(draw, depth=0):
    return "".join(draw.choice(BLANKS) + statement(draw, depth) for _ in range(draw.randint(1, 3))) + draw.choice(BLANKS)


def printed(draw):
    return f"{{{{{draw.choice(['', '-'])} {expression(draw, 1)} {draw.choice(['', '-'])}}}}}"


def statement(draw, depth):
    kind = draw.randrange(14) if depth < 3 else 0
    body = lambda: statements(draw, depth + 1)
    if kind < 3:
        return printed(draw)
    if kind == 3:
        other = tag(draw, "else") + body() if draw.random() < 0.5 else ""
        middle = tag(draw, f"elif {expression(draw, 2)}") + body() if draw.random() < 0.3 else ""
        return tag(draw, f"if {expression(draw, 2)}") + body() + middle + other + tag(draw, "endif")
    if kind == 4:
        attribute = draw.choice(["index", "index0", "revindex", "revindex0", "first", "last", "length", "previtem", "nextitem", "depth", "cycle('a', 'b')",
                                 "changed(v)"])
        condition = draw.choice(["", "", " if v", " if v is string", f" if {expression(draw, 3)}"])
        other = tag(draw, "else") + body() if draw.random() < 0.3 else ""
        jump = tag(draw, f"if loop.index {draw.choice(['== 2', '> 1'])}") + tag(draw, draw.choice(["break", "continue"])) + tag(draw, "endif")
        return (tag(draw, f"for v in {draw.choice(LISTS + DICTS)}{condition}") + f"{{{{ loop.{attribute} }}}}:{{{{ v }}}};"
                + (jump if draw.random() < 0.3 else "") + body() + other + tag(draw, "endfor"))
    if kind == 5:
        return tag(draw, f"for k, v in {draw.choice(DICTS)}.items()") + "{{ k }}={{ v }}" + body() + tag(draw, "endfor")
    if kind == 6:
        return tag(draw, f"set {draw.choice(['d', 'x', 'missing', 'loop_count'])} = {expression(draw, 2)}") + "{{ x }}"
    if kind == 7:
        return tag(draw, "set x") + body() + tag(draw, "endset") + "[{{ x }}]"
    if kind == 8:
        return tag(draw, f"set ns.a = {draw.choice(['ns.a + 1', expression(draw, 2)])}") + "{{ ns.a }}"
    if kind == 9:
        call = draw.choice(["m(1)", "m(1, 2)", "m(b='z', a='y')", "m()", "m(1, 2, 3)", "m(1, c=2)", "m(*[1, 2])", "m(**{'a': 5})", "m(1)|upper"])
        more = draw.choice(["", "{{ kwargs }}", "{{ varargs }}"])
        return tag(draw, "macro m(a, b='dflt')") + "{{ a }}|{{ b }}|" + more + body() + tag(draw, "endmacro") + f"{{{{ {call} }}}}"
    if kind == 10:
        return (tag(draw, "macro w(a='t')") + "<{{ a }}>{{ caller('c') }}</>" + tag(draw, "endmacro") + tag(draw, "call(u) w()") + "{{ u }}" + body()
                + tag(draw, "endcall"))
    if kind == 11:
        return draw.choice([tag(draw, "generation") + body() + tag(draw, "endgeneration"), tag(draw, f"filter {draw.choice(['upper', 'trim', 'indent(2)'])}")
                            + body() + tag(draw, "endfilter"), tag(draw, "with x = 1, q = 'w'") + "{{ x }}{{ q }}" + body() + tag(draw, "endwith")])
    if kind == 12:
        return draw.choice(["{# note #}", "{#- note -#}", "{#+ note +#}", "{# a\n b #}\n", "{% raw %} {{ x }} {% endraw %}", "{%- raw -%}  {% x %}  {%- endraw -%}"])
    return printed(draw)


START = "{% set d = {'a': 'va', 'b': [1, 2], 'items': 3, 'é': none} %}{% set ns = namespace(a=1, b='x') %}{% set loop_count = 3 %}"


def random_template(draw):
    if draw.random() < 0.6:  # one expression, as most of the larger ones raise somewhere
        return START + "{{ " + expression(draw, 2) + " }}"
    return START + statements(draw, draw.choice([1, 2, 2]))
