"""Training on conversations, with the ChatML template of tests/goldens/text/chat, marked for Hugging Face."""

import random
from pathlib import Path

from . import chat_masks, reference, texts
from .workbench import MAX_LENGTH, Workbench

TEMPLATES = Path(__file__).resolve().parents[3] / "tests/goldens/text/chat"


def conversations(rows, draw):
    """A system prompt and several turns, some of them with tool calls."""
    at = 0
    while at < len(rows):
        messages = [{"role": "system", "content": "Answer backwards."}] if draw.random() < 0.3 else []
        for row in rows[at : at + draw.randint(1, 2)]:
            messages.append({"role": "user", "content": row["input"]})
            if draw.random() < 0.2:
                call = {"type": "function", "function": {"name": "cook", "arguments": {"what": row["target"]}}}
                messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
                messages.append({"role": "tool", "content": "done"})
            messages.append({"role": "assistant", "content": row["target"]})
            at += 1
        yield {"messages": messages}


class ChatBench(Workbench):
    def make_tokenizer(self):
        tokenizer = super().make_tokenizer()
        template = chat_masks.plain((TEMPLATES / "chatml.jinja").read_text(encoding="utf-8"))
        (self.model / "chat_template.jinja").write_text(template, encoding="utf-8")
        self.marked_template = chat_masks.marked("chatml", template)
        return tokenizer

    def make_rows(self, seed):
        draw = random.Random(seed)
        return tuple(list(conversations(rows, draw)) for rows in (texts.rows(30, seed=seed), texts.rows(9, seed=seed + 1)))

    def config(self, dtype="fp32", **changes):
        config = super().config(dtype, **changes)
        del config["data"]["input"], config["data"]["target"]
        return config

    def encode(self, row):
        encoded = self.tokenizer.apply_chat_template(
            row["messages"], chat_template=self.marked_template, return_dict=True, return_assistant_tokens_mask=True
        )
        ids, mask = encoded["input_ids"], encoded["assistant_masks"]
        labels = [token if learned else reference.IGNORE for token, learned in zip(ids, mask)]
        return ids[:MAX_LENGTH], labels[:MAX_LENGTH]
