"""Random conversations and tools, with contents that are difficult for chat templates."""

import json

WORDS = ["Hello", "world", "naïve", "Straße", "ΣΊΣΥΦΟΣ", "今天", "\U0001f600", "<|im_end|>", "</think>", "<think>", "  ", "\n", "\n\n",
         "\t", "'quote'", '"double"', "a<b & c>d", "{{ x }}", "{% if %}", "\\n", "\u00a0", "\u2028", "\x1f", "\x7f", "1,234.5", "İI",
         "<tool_call>", "</tool_response>", "[INST]", "end.", "\r\n", "\ufeff", "e\u0301"]


def words(draw):
    return " ".join(draw.choice(WORDS) for _ in range(draw.randint(0, 6))) if draw.random() < 0.9 else ""


def value(draw, depth=0):
    kind = draw.randrange(8 if depth < 3 else 6)
    if kind == 0:
        return draw.choice([0, 1, -7, 42, 10**12])
    if kind == 1:
        return draw.choice([0.0, 1.0, -0.5, 1e16, 1e-5, 3.14159, 1e22, 123456789.125])
    if kind == 2:
        return draw.choice([True, False, None])
    if kind < 6:
        return words(draw)
    if kind == 6:
        return [value(draw, depth + 1) for _ in range(draw.randrange(4))]
    return {draw.choice(["a", "b", "name", "items", "ключ", "x y"]): value(draw, depth + 1) for _ in range(draw.randrange(4))}


def content(draw, plain):
    if not plain and draw.random() < 0.15:
        return [{"type": "text", "text": words(draw)} for _ in range(draw.randint(1, 2))]
    return words(draw)


def tool_call(draw, plain):
    arguments = {draw.choice(["city", "unit", "größe"]): value(draw, 1) for _ in range(draw.randrange(3))}
    function = {"name": draw.choice(["get_weather", "search"]), "arguments": arguments}
    if not plain and draw.random() < 0.4:
        function["arguments"] = json.dumps(arguments)
    call = {"type": "function", "function": function} if plain or draw.random() < 0.8 else function
    if plain or draw.random() < 0.5:
        call["id"] = "".join(draw.choice("abc123XYZ") for _ in range(9))
    return call


def called_tools(draw, plain):
    """A message that calls tools, and the messages with the results."""
    calls = [tool_call(draw, plain) for _ in range(1 if plain else draw.randint(1, 2))]
    yield {"role": "assistant", "content": draw.choice(["", words(draw)] if plain else ["", None, words(draw)]), "tool_calls": calls}
    for call in calls:
        yield {"role": "tool", "name": call.get("function", call)["name"], "tool_call_id": call.get("id", "callid123"), "content": words(draw)}


def conversation(draw):
    plain = draw.random() < 0.6  # only what every template can handle
    messages = [{"role": "system", "content": words(draw)}] if draw.random() < 0.4 else []
    turns = draw.randint(1, 3)
    for turn in range(turns):
        messages.append({"role": "user", "content": content(draw, plain)})
        if draw.random() < (0.15 if plain else 0.4):
            messages += called_tools(draw, plain)
        if turn + 1 < turns or draw.random() < 0.6:
            answer = {"role": "assistant", "content": content(draw, plain)}
            if draw.random() < 0.3:
                answer["content"] = f"<think>\n{words(draw)}\n</think>\n\n{words(draw)}"
            if draw.random() < 0.2:
                answer[draw.choice(["reasoning_content", "thinking", "reasoning"])] = words(draw)
            messages.append(answer)
    if not plain and draw.random() < 0.2:
        messages.append({"role": draw.choice(["developer", "ipython", "narrator"]), "content": words(draw)})
    return messages


def tool(draw):
    properties = {name: {"type": draw.choice(["string", "integer", ["string", "null"]]), "description": words(draw)}
                  for name in draw.sample(["city", "unit", "count", "größe"], draw.randint(0, 3))}
    if draw.random() < 0.3:
        properties["kind"] = {"type": "string", "enum": ["a", "b"], "default": None}
        properties["list"] = {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "number"}}}}
    parameters = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    return {"type": "function", "function": {"name": draw.choice(["get_weather", "search"]), "description": words(draw), "parameters": parameters}}
