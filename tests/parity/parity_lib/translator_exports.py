"""Checks that CTranslate2 converts an exported T5 with its own converter, and answers as `trainer generate` does."""

import json
from functools import partial

import ctranslate2
from ctranslate2.converters import TransformersConverter
from transformers import AutoTokenizer

from . import exports, texts

FAMILIES = ("t5_v1_0", "t5_v1_1", "mt5")
BEAMS = (1, 4)
LENGTH = 20  # of every answer of a beam search: the programs differ in when they stop looking for a better one


class Converter(TransformersConverter):
    """Transformers 5 says of every T5 that its embeddings are tied, and the converter divides the logits of such models."""

    def load_model(self, *arguments, **options):
        model = super().load_model(*arguments, **options)
        config = model.config
        config.tie_word_embeddings = config.model_type == "t5" and getattr(config, "scale_decoder_outputs", True)
        return model


def their_answers(directory, prompts, beams):
    tokenizer = AutoTokenizer.from_pretrained(directory / "model")
    sources = [tokenizer.convert_ids_to_tokens(tokenizer(prompt).input_ids) for prompt in prompts]
    translator = ctranslate2.Translator(str(directory / "converted"), compute_type="float32", intra_threads=1)
    results = translator.translate_batch(sources, beam_size=beams, max_decoding_length=LENGTH,
                                         min_decoding_length=LENGTH if beams > 1 else 1)
    ids = [tokenizer.convert_tokens_to_ids(result.hypotheses[0]) for result in results]
    return [tokenizer.decode(each, skip_special_tokens=True) for each in ids]


def our_answers(program, directory, prompts, beams):
    source, out = directory / "rows.jsonl", directory / f"answers_{beams}.jsonl"
    source.write_text("".join(json.dumps({"input": prompt}) + "\n" for prompt in prompts), encoding="utf-8")
    program.run("generate", directory / "exported", "--input-file", source, "--output-file", out, "--num-beams", str(beams),
                "--max-new-tokens", str(LENGTH), "--min-new-tokens", str(LENGTH if beams > 1 else 1), "--device", "cpu", "--dtype", "fp32")  # fmt: skip
    return [json.loads(line)["prediction"] for line in out.read_text(encoding="utf-8").splitlines()]


def run(family, report, program, directory):
    exports.make_model(directory / "model", family)
    program.run("export", directory / "model", directory / "exported", "--dtype", "fp32")
    Converter(str(directory / "exported")).convert(str(directory / "converted"))
    prompts = [row["input"] for row in texts.rows(12, seed=3)]
    for beams in BEAMS:
        theirs, ours = their_answers(directory, prompts, beams), our_answers(program, directory, prompts, beams)
        report.equal(f"answers with {beams} beams", ours, theirs)


def cases():
    return [(f"translator_{family}", partial(run, family)) for family in FAMILIES]
