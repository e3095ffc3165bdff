"""The parts of a conversation that are to be learned, found without the program, in two ways.

By prefixes: an answer begins at the end of the conversation before it, rendered with the generation prompt, and ends at the
end of the conversation up to it. This works only if these renderings are prefixes of the whole, as with most templates.
By marks: {% generation %}, written by hand into the templates of tests/goldens/text/chat, as Hugging Face reads it.
"""

import copy
import json
import random
import re

from transformers.utils.chat_template_utils import render_jinja_template

from . import program as programs
from .random_conversations import conversation, tool

# (text in the template, the same text with marks)
MARKS = {
    "bars": [
        (
            "{{ message['content'] }}{{ eos_token if message.role == 'assistant' else '<|end|>' }}\n",
            "{% if message.role == 'assistant' %}{% generation %}{{ message['content'] }}{{ eos_token }}{% endgeneration %}"
            "{% else %}{{ message['content'] }}<|end|>{% endif %}{{ '\\n' }}",
        )
    ],
    "chatml": [
        (
            '{{- "<|im_start|>assistant\\n" }}\n        {%- if loop.index0',
            '{{- "<|im_start|>assistant\\n" }}{%- generation %}\n        {%- if loop.index0',
        ),
        (
            '{%- endfor %}\n        {{- "<|im_end|>\\n" }}',
            '{%- endfor %}\n        {{- "<|im_end|>" }}{%- endgeneration %}{{- "\\n" }}',
        ),
    ],
    "headers": [
        (
            """{{- '{"name": "' + call.name + '", "parameters": ' + call.arguments | tojson + "}<|eot_id|>" }}""",
            """{%- generation -%}{{- '{"name": "' + call.name + '", "parameters": ' + call.arguments | tojson + """
            """"}<|eot_id|>" }}{%- endgeneration %}""",
        ),
        (
            """{{- "<|start_header_id|>" + message["role"] + "<|end_header_id|>\\n\\n" + message["content"] | trim + "<|eot_id|>" }}""",
            """{{- "<|start_header_id|>" + message["role"] + "<|end_header_id|>\\n\\n" }}
        {%- if message["role"] == "assistant" %}{% generation %}{{ message["content"] | trim + "<|eot_id|>" }}{% endgeneration %}
        {%- else %}{{ message["content"] | trim + "<|eot_id|>" }}{% endif %}""",
        ),
    ],
    "inst": [
        ('{{- "[TOOL_CALLS] [" -}}', '{%- generation -%}{{- "[TOOL_CALLS] [" -}}'),
        (
            """"]" + eos_token) -}}\n        {%- endfor -%}""",
            """"]" + eos_token) -}}\n        {%- endfor -%}{%- endgeneration -%}""",
        ),
        (
            '{{- " " + m.content | trim + eos_token -}}',
            '{%- generation -%}{{- " " + m.content | trim + eos_token -}}{%- endgeneration -%}',
        ),
    ],
    "turns": [
        (
            "{% if turn.content is string %}{{ turn.content | trim }}",
            "{% macro said(turn) %}{% if turn.content is string %}{{ turn.content | trim }}",
        ),
        (
            "<end_of_turn>\n{% endfor %}",
            "<end_of_turn>{% endmacro %}{% if role == 'model' %}{% generation %}{{ said(turn) }}{% endgeneration %}"
            "{% else %}{{ said(turn) }}{% endif %}{{ '\\n' }}{% endfor %}",
        ),
    ],
}
MARK = re.compile(r"\{%-?\s*(end)?generation\s*-?%\}")


def plain(template):
    """The template without its own marks."""
    return re.sub(r"\{%-\s*generation\s*%\}\{\{", "{{-", template).replace("{% endgeneration %}", "")


def marked(name, template):
    for before, after in MARKS[name]:
        assert template.count(before) == 1, (name, before)
        template = template.replace(before, after)
    return template


def by_prefixes(render, messages):
    """(message, begin, end) in characters for each answer; begin or end is None if this way cannot find it."""
    whole = render(messages, False)
    for i, message in enumerate(messages):
        if message["role"] != "assistant" or i == 0:
            continue
        try:
            before, after = render(messages[:i], True), render(messages[: i + 1], False)
            if after == render(messages[:i], False):  # the template leaves it out
                continue
        except Exception:  # a conversation that must not end there
            continue
        after = after.rstrip()
        yield i, len(before) if whole.startswith(before) else None, len(after) if whole.startswith(after) else None


def by_marks(template, messages, tools, variables):
    """The ranges [begin, end) that Hugging Face finds by the template's marks."""
    rendered, marks = render_jinja_template(
        [messages], tools=tools, chat_template=template, return_assistant_tokens_mask=True, **variables
    )
    return rendered[0], [tuple(mark) for mark in marks[0]]


def reads_parts(tokenizer, template):
    """Whether the template reads contents that are lists of parts; others print them as Python does."""
    messages = [{"role": role, "content": [{"type": "text", "text": role}]} for role in ("user", "assistant")]
    try:
        return "type" not in tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False)
    except Exception:
        return False


def as_read(messages, parts):
    """The messages as `trainer` gives them to a template: arguments of calls as objects, and parts joined unless it reads them."""
    messages = copy.deepcopy(messages)
    for message in messages:
        for call in message.get("tool_calls", []):
            function = call.get("function", call)
            if isinstance(function["arguments"], str):
                function["arguments"] = json.loads(function["arguments"])
        if isinstance(message["content"], list) and not parts:
            message["content"] = "".join(part["text"] for part in message["content"])
    return messages


def writes_all(row, rendered):
    """Whether the template has written the calls, results and tools of the row; `trainer` refuses rows that lose them."""
    texts = [tool["function"]["name"] for tool in row.get("tools", [])]
    for message in row["messages"]:
        texts += [call.get("function", call)["name"] for call in message.get("tool_calls", [])]
        texts += [message["content"].strip()] if message["role"] == "tool" else []
    return all(text in rendered for text in texts)


def rows(tokenizer, template, count, seed):
    """Conversations that the template accepts and writes as a whole."""
    draw, taken, parts = random.Random(seed), [], reads_parts(tokenizer, template)
    while len(taken) < count:
        row = {"messages": conversation(draw)}
        if draw.random() < 0.3:
            row["tools"] = [tool(draw) for _ in range(draw.randint(1, 2))]
        try:
            rendered = tokenizer.apply_chat_template(as_read(row["messages"], parts), tools=row.get("tools"), chat_template=template,
                                                     tokenize=False)
        except Exception:
            continue
        if writes_all(row, rendered):
            taken.append(row)
    return taken


def check_masks(report, program, model, tokenizer, folder, scratch, count=40):
    """Compares ids and masks of conversations, for every golden template, found by prefixes and by marks."""
    for name in MARKS:
        source = plain((folder / f"{name}.jinja").read_text(encoding="utf-8"))
        with_marks = marked(name, source)
        drawn = rows(tokenizer, source, count, seed=len(name))
        parts = reads_parts(tokenizer, source)
        theirs = [
            tokenizer.apply_chat_template(
                as_read(row["messages"], parts),
                tools=row.get("tools"),
                chat_template=with_marks,
                return_dict=True,
                return_assistant_tokens_mask=True,
            )
            for row in drawn
        ]
        programs.write_rows(scratch / "rows.jsonl", drawn)
        for what, template in (("where characters come from", source), ("marks", with_marks)):
            file = scratch / f"{name}.jinja"
            file.write_text(template, encoding="utf-8")
            # The marks of {% generation %} count an empty <think> block that only the template writes.
            options = ["--input", scratch / "rows.jsonl", "--chat", "--chat-template", file, "--learn-reasoning", "true"]
            ours = program.rows("tokenize", "--model", model, *options)
            learned = sum(map(sum, (row["mask"] for row in ours)))
            report.equal(f"ids of {len(drawn)} conversations, {name}", [row["ids"] for row in ours], [row["input_ids"] for row in theirs])
            differing = [
                f"\n    {row['text']!r}\n    ours {row['mask']}\n    HF   {other['assistant_masks']}"
                for row, other in zip(ours, theirs)
                if row["mask"] != other["assistant_masks"]
            ]
            report.check(f"masks by {what}, {name}", not differing and learned > 0, f"{learned} tokens learned" + "".join(differing[:2]))
