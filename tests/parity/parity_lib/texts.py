"""Texts for the parity runs: enough words to train a tokenizer, and texts that are difficult for tokenizers."""

import random

SUBJECTS = ["the cook", "my neighbour", "a tired student", "Frau Müller", "every second guest", "José", "nobody"]
VERBS = ["stirs", "boils", "slices", "has forgotten", "doesn't like", "sells", "re-heats"]
THINGS = ["soup", "onions", "12 eggs", "crème brûlée", "black tea", "the roasted potatoes", "日本茶", "3.5 kg of rice"]
PLACES = ["in the kitchen", "at 18:30", "on Monday", "behind the old mill", "für zwei Gäste", "without salt"]

ODD_TEXTS = [
    "",
    " ",
    "  leading and   inner    blanks  ",
    "line one\nline two\n\n\nline five\r\n\tindented",
    "it's we'll I'M they'Ve don't 'twas",
    "0 12 345 6789 1,234,567.89 ½ ² ٣",
    "naïve café — “quotes” … ¿qué? ¡sí!",
    "decomposed: e\u0301 o\u0308 and composed: é ö",
    "日本語のテキスト と 한국어 и русский عربى",
    "emoji 👩‍👩‍👧‍👦 🇩🇪 👍🏽 ok",
    "a{b}[c]<d>|e|\\f/ #g @h $i %j ^k &l *m",
    "</s> <pad> <extra_id_0> <|endoftext|> <|im_start|>user",
    "MiXeD CaSe HTTPServer2Go snake_case camelCase",
    "trailing newline\n",
    "non\u00a0breaking\u2003em\u200bzero\ufeffbom",
    "x" * 300,
]


def sentence(draw):
    parts = [draw.choice(SUBJECTS), draw.choice(VERBS), draw.choice(THINGS)]
    parts += draw.sample(PLACES, draw.randrange(0, 4))
    return " ".join(parts) + draw.choice([".", "!", "?"])


def rows(count, seed):
    """{"input", "target"} rows of many lengths."""
    draw = random.Random(seed)
    result = []
    for _ in range(count):
        text = " ".join(sentence(draw) for _ in range(draw.randrange(1, 4)))
        words = text.split()
        target = " ".join(reversed(words[: draw.randrange(1, 9)]))
        result.append({"input": text, "target": target})
    return result


def corpus():
    return [row[key] for row in rows(400, seed=7) for key in ("input", "target")] + ODD_TEXTS
