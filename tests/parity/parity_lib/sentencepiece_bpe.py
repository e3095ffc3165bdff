"""A small SentencePiece BPE tokenizer like Llama 2's, and its merges by scores, as GGUF readers do them."""

import heapq
import json

import sentencepiece
from transformers import LlamaTokenizer


def make(directory, corpus, vocab_size):
    """Writes tokenizer.model, and the tokenizer.json that Transformers makes from it."""
    directory.mkdir(parents=True, exist_ok=True)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text for text in corpus if text.strip()]),
        model_prefix=str(directory / "tokenizer"),
        model_type="bpe",
        vocab_size=vocab_size,
        byte_fallback=True,
        character_coverage=0.98,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        split_digits=True,
        num_threads=1,
        minloglevel=2,
    )
    (directory / "tokenizer.vocab").unlink()
    tokens = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    LlamaTokenizer.from_pretrained(directory, **tokens, legacy=True).save_pretrained(directory)
    settings = json.loads((directory / "tokenizer_config.json").read_text())
    (directory / "tokenizer_config.json").write_text(json.dumps(settings | tokens))


def as_gemma(directory, bos=None):
    """Makes the tokenizer one like Gemma's: no blank in front, and a cut at blanks that finds none, and maybe a BOS. Removes
    tokenizer.model."""
    path = directory / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    tokenizer["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    tokenizer["pre_tokenizer"] = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    tokenizer["decoder"]["decoders"] = [step for step in tokenizer["decoder"]["decoders"] if step["type"] != "Strip"]
    if bos:
        special = {bos: {"id": bos, "ids": [tokenizer["model"]["vocab"][bos]], "tokens": [bos]}}
        text, first = {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": bos, "type_id": 0}}
        tokenizer["post_processor"] = {"type": "TemplateProcessing", "single": [first, text], "pair": [first, text], "special_tokens": special}
    path.write_text(json.dumps(tokenizer, ensure_ascii=False))
    (directory / "tokenizer.model").unlink()


def by_scores(text, tokens, types, scores):
    """The ids: the adjacent pair whose token has the highest score is merged, leftmost first; the rest becomes bytes."""
    if not text:
        return []
    ids = {token: id for id, token in enumerate(tokens) if types[id] in (1, 4)}
    symbols = list("▁" + text.replace(" ", "▁"))
    queue = []

    def offer(left, right):
        if left >= 0 and right < len(symbols) and (id := ids.get(symbols[left] + symbols[right])) is not None:
            heapq.heappush(queue, (-scores[id], left, right, symbols[left], symbols[right]))

    following = list(range(1, len(symbols) + 1))
    before = list(range(-1, len(symbols) - 1))
    for i in range(len(symbols) - 1):
        offer(i, i + 1)
    while queue:
        _, left, right, a, b = heapq.heappop(queue)
        if symbols[left] != a or symbols[right] != b or following[left] != right:
            continue
        symbols[left], symbols[right] = a + b, ""
        following[left] = following[right]
        if following[left] < len(symbols):
            before[following[left]] = left
        offer(before[left], left)
        if following[left] < len(symbols):
            offer(left, following[left])
    result = []
    for symbol in filter(None, symbols):
        if symbol in ids:
            result.append(ids[symbol])
        else:
            result += [tokens.index(f"<0x{byte:02X}>") for byte in symbol.encode()]
    return result
