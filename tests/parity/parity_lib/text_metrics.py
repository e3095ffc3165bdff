"""The scores of the Python packages, and texts that are difficult to score."""

import collections
import json
import re
import string

from rouge_score import rouge_scorer
from sacrebleu.metrics import BLEU, CHRF, TER

WORDS = ["the", "a", "an", "The", "cat", "sat", "on", "mat", "theatre", "an-other", "a.b", "it's", "don't", "U.S.", "e.g.,", "3.5", "1,234.56",
         "10-20", "x-ray", "3-", "-3", ".5", "5.", "...", "?!", "(x)", "[y]", "{z}", "a/b", "@home", "#1", "$5", "50%", "A&B", "&amp;", "&quot;",
         "&lt;b&gt;", "&amp;lt;", "&", "<skipped>", "<skip<skipped>ped>", "-\n", "\n", "\r\n", "\t", "\x1f", "\x0b", "\u00a0", "\u2003", "\u3000", "\u200b",
         "\u2028", "\x85", "naïve", "cafe\u0301", "a\u0301", "Straße", "STRASSE", "ΣΊΣΥΦΟΣ", "ΣΑΣ", "İstanbul", "ıi", "\u212a", "\u212b", "ﬁ", "Ǆ",
         "日本語", "今天天气很好", "。", "、", "「引用」", "한국어", "русский", "Привет,", "«да»", "“so”", "—", "…", "¿qué?", "¡sí!", "عربي", "؟", "हिन्दी", "ไทย",
         "\U0001f600", "👩‍👩‍👧‍👦", "🇩🇪", "👍🏽", "½", "²", "٣", "１２", "Ａ", "ａ", "a_b", "_", "a'", "'a", "`a`", "~", "^", "|", "\\", "a·b", "1.2.3", "1,2,3",
         "1..2", ",,", "a.,b", "é.1", "1.é", "é-1", "1-é", "。.", "1-2-3", "--", "\ufffd", "\ufeff", "𝒜", "Ⓐ", "Ⅳ", "ª", "a̲", "\u0600a"]
JSON = ["{}", "[]", '{"a": 1}', '{"a":1.0}', ' {"a": 1}\n', '{"a": 1, "b": [true, null, "é"]}', '{"b": [true, null, "\\u00e9"], "a": 1}', '{"a": 1,}', "{'a': 1}",
        '{"a": 2}', '[1, 2]', '[2, 1]', '{"a": 1} ', '```json\n{"a": 1}\n```', '{"a": 1', "", " ", "null", "12", '"text"', "tru", '{"a": "x\ty"}', '{"a": 01}', "[1.0]", "[1]",
        '[1e2]', "[100]", '{"a": {"b": {"c": []}}}', '{"a": {"b": {"c": [ ]}}}', '{"a": 1} {"a": 1}', "[" * 50, "[" * 50 + "]" * 50]


def normalized(text):
    """normalize_answer() of SQuAD's script."""
    text = "".join(character for character in text.lower() if character not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def f1(prediction, target):
    """compute_f1() of SQuAD 2.0's script."""
    predicted, expected = normalized(prediction), normalized(target)
    if not predicted or not expected:
        return float(predicted == expected)
    same = sum((collections.Counter(predicted) & collections.Counter(expected)).values())
    precision, recall = same / len(predicted), same / len(expected)
    return 2 * precision * recall / (precision + recall) if same else 0.0


def refuse(constant):
    raise ValueError(constant)  # NaN and Infinity, which are not JSON


def parsed(text):
    """(whether it is JSON, its value)"""
    try:
        return True, json.loads(text, parse_constant=refuse)
    except ValueError:
        return False, None


def fields(target, predicted, name):
    """Whether each field of a target is right: members of objects, also of objects in objects and in lists of objects."""
    if isinstance(target, dict) and target:
        return [same for key, value in target.items()
                for same in fields(value, predicted.get(key, fields) if isinstance(predicted, dict) else fields, name + key)]
    if isinstance(target, list) and target and all(isinstance(value, dict) for value in target):
        there = predicted if isinstance(predicted, list) else []
        return [same for i, value in enumerate(target) for same in fields(value, there[i] if i < len(there) else fields, name + "[]")]
    return [predicted is not fields and predicted == target] if name else []


def score(predictions, targets):
    pairs = list(zip(predictions, targets, strict=True))
    mean = lambda values: sum(values) / len(pairs)  # noqa: E731
    scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL"])
    rouge = [scorer.score(target, prediction) for prediction, target in pairs]
    values = {"exact_match": mean(p.strip() == t.strip() for p, t in pairs), "f1": mean(f1(p, t) for p, t in pairs)}
    values |= {name: mean(scores[name].fmeasure for scores in rouge) for name in ("rouge1", "rouge2", "rougeL")}
    values["bleu"] = BLEU(force=True).corpus_score(predictions, [targets]).score
    values["chrf"] = CHRF().corpus_score(predictions, [targets]).score
    values["ter"] = TER().corpus_score(predictions, [targets]).score
    expected, predicted = [parsed(t) for t in targets], [parsed(p) for p in predictions]
    if all(isinstance(value, (dict, list)) for _, value in expected):
        values["json_valid"] = mean(valid for valid, _ in predicted)
        values["json_match"] = mean(p == e for p, e in zip(predicted, expected))
        right = [same for (_, p), (_, e) in zip(predicted, expected) for same in fields(e, p, "")]
        if right:
            values["json_fields"] = sum(right) / len(right)
    return values


def text(draw, words, most):
    return "".join(draw.choice(words) + draw.choice([" ", " ", " ", "", "  "]) for _ in range(draw.randint(0, most)))


def changed(draw, target, words):
    """A prediction that has much in common with the target."""
    pieces = re.split(r"( )", target)
    for _ in range(draw.randint(0, 4)):
        at = draw.randrange(len(pieces))
        pieces[at : at + draw.randint(0, 2)] = [draw.choice(words)] if draw.random() < 0.7 else []
        pieces = pieces or [""]
    return "".join(pieces)


def corpus(draw):
    """Random predictions and targets."""
    if draw.random() < 0.15:
        count = draw.randint(1, 5)
        targets = [draw.choice([source for source in JSON if isinstance(parsed(source)[1], (dict, list))]) for _ in range(count)]
        return [draw.choice([draw.choice(JSON), target]) for target in targets], targets
    words = draw.sample(WORDS, draw.choice([3, 8, 30, len(WORDS)]))
    most = draw.choice([1, 3, 8, 40])
    predictions, targets = [], []
    for _ in range(draw.choice([1, 1, 2, 5, 20])):
        target = text(draw, words, most)
        targets.append(target)
        kind = draw.random()
        predictions.append(changed(draw, target, words) if kind < 0.7 else target if kind < 0.8 else text(draw, words, most))
    return predictions, targets
