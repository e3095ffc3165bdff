"""A byte-level BPE tokenizer in the form of Qwen2's tokenizer.json, with merges learned from a text."""
import collections
import json
import re
import unicodedata

# The regular expression in Qwen2's own file, which the tokenizer splits by.
QWEN2_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
               r"\s+(?!\S)|\s+")
# The same for Python's re, which has no \p{L}. Only the choice of merges depends on it.
PYTHON_SPLIT = re.compile(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\w]?[^\W\d_]+|\d| ?(?:[^\s\w]|_)+[\r\n]*|\s*[\r\n]+|"
                          r"\s+(?!\S)|\s+")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + "
                 "'<|im_end|>' + '\n' }}{% endfor %}"
                 "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


def byte_alphabet():
    """GPT-2's printable character for each of the 256 bytes."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    table, spare = {byte: chr(byte) for byte in printable}, 256
    for byte in range(256):
        if byte not in table:
            table[byte] = chr(spare)
            spare += 1
    return table


def learn_merges(text, count):
    """At most `count` merges, the most frequent pair first. Ties are sorted by the pair, so that the order is fixed."""
    alphabet = byte_alphabet()
    pieces = collections.Counter(PYTHON_SPLIT.findall(unicodedata.normalize("NFC", text)))
    words = {tuple(alphabet[byte] for byte in piece.encode()): times for piece, times in pieces.items()}
    merges = []
    while len(merges) < count:
        pairs = collections.Counter()
        for word, times in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += times
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        if pairs[best] < 2:
            break
        merges.append(best)
        words = {merged(word, best): times for word, times in words.items()}
    return merges


def merged(word, pair):
    if pair[0] not in word:
        return word
    result, i = [], 0
    while i < len(word):
        if word[i:i + 2] == pair:
            result.append(pair[0] + pair[1])
            i += 2
        else:
            result.append(word[i])
            i += 1
    return tuple(result)


def train(text_file, vocab_size, family, directory):
    """Writes tokenizer.json and its configuration; returns the number of ids, the pad token's and the end token's id."""
    text = text_file.read_text(encoding="utf-8")
    symbols = sorted(byte_alphabet().values())
    merges = learn_merges(text, max(0, vocab_size - len(symbols) - len(SPECIAL)))
    symbols += ["".join(pair) for pair in merges]
    vocabulary = {symbol: index for index, symbol in enumerate(dict.fromkeys(symbols))}
    added = [{"id": len(vocabulary) + i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True} for i, token in enumerate(SPECIAL)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": QWEN2_SPLIT}, "behavior": "Isolated", "invert": False}
    # Qwen2's file writes a merge as "a b", Qwen3's as ["a", "b"].
    spelt = [list(pair) if family == "qwen3" else " ".join(pair) for pair in merges]
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": byte_level, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
                  "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocabulary, "merges": spelt},
    }
    settings = {
        "add_bos_token": False, "add_prefix_space": False,
        "added_tokens_decoder": {str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in added},
        "additional_special_tokens": SPECIAL[1:], "bos_token": None, "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False, "eos_token": SPECIAL[2], "errors": "replace", "model_max_length": 2048,
        "pad_token": SPECIAL[0], "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer" if family.startswith("qwen") else "PreTrainedTokenizerFast", "unk_token": None,
    }
    for name, content in (("tokenizer.json", tokenizer), ("tokenizer_config.json", settings)):
        (directory / name).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return len(vocabulary) + len(added), added[0]["id"], added[2]["id"]
