"""Small tokenizers of the real kinds, trained with the libraries that train real ones."""

import json

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Qwen3.5's pattern in the place of Qwen's, as tokenizer.json spells both.
QWEN3_5_CHANGE = (r"?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[", r"?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[")
LLAMA_SPLIT = QWEN_SPLIT.replace(r"\p{N}|", r"\p{N}{1,3}|")


def make_sentencepiece(directory, corpus, vocab_size):
    """Makes a T5 tokenizer: spiece.model and its companion files. Returns it as Transformers loads it."""
    directory.mkdir(parents=True, exist_ok=True)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text for text in corpus if text.strip()]),
        model_prefix=str(directory / "spiece"),
        vocab_size=vocab_size,
        hard_vocab_limit=False,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        num_threads=1,
        minloglevel=2,
    )
    (directory / "spiece.vocab").unlink()
    extra = [f"<extra_id_{i}>" for i in range(100)]
    special = {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>", "additional_special_tokens": extra}
    (directory / "special_tokens_map.json").write_text(json.dumps(special))
    settings = special | {"tokenizer_class": "T5Tokenizer", "extra_ids": 100, "model_max_length": 512}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    return AutoTokenizer.from_pretrained(directory)


def make_byte_level(directory, family, corpus, vocab_size):
    """Makes a byte-level BPE tokenizer.json like Qwen's (NFC, own end token) or like Llama 3's (a BOS)."""
    directory.mkdir(parents=True, exist_ok=True)
    llama = family == "llama"
    tokenizer = Tokenizer(models.BPE(ignore_merges=llama))
    if not llama:
        tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(LLAMA_SPLIT if llama else QWEN_SPLIT), behavior="isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    names = ["<|begin_of_text|>", "<|end_of_text|>"] if llama else ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(corpus, trainer)
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names])
    post = processors.ByteLevel(trim_offsets=False)
    if llama:
        begin = tokenizer.token_to_id(names[0])
        template = processors.TemplateProcessing(single=f"{names[0]} $A", special_tokens=[(names[0], begin)])
        post = processors.Sequence([post, template])
    tokenizer.post_processor = post
    tokenizer.save(str(directory / "tokenizer.json"))
    special = {"bos_token": names[0] if llama else None, "eos_token": names[-1], "pad_token": names[-1 if llama else 0]}
    settings = special | {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    return PreTrainedTokenizerFast.from_pretrained(directory)
