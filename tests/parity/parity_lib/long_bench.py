"""The files of a long run: real text, and a model wide enough that rounding matters, with a vocabulary of real size."""

import functools

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file

from . import real_text, reference, small_tokenizers, tiny_models
from .comparison import column
from .workbench import Curve, Evaluation, Workbench

TRAIN_ROWS = 396  # not a multiple of the effective batch: an epoch ends in a short step
EVAL_ROWS = 48
PIECES = 6000  # of the tokenizers; a model's vocabulary is larger, as in real T5 files
LONGEST = 14  # words of a verse
T5_SIZES = {"d_model": 128, "d_ff": 256, "d_kv": 32, "num_heads": 4, "num_layers": 2, "num_decoder_layers": 2}
T5_SIZES |= {"relative_attention_num_buckets": 32, "relative_attention_max_distance": 128}
DECODER_SIZES = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 3, "num_key_value_heads": 2}
OTHERS = {"qwen2": tiny_models.rope(1e6), "qwen3": {"head_dim": 48}}
OTHERS["umt5"] = {"dense_act_fn": "gelu_new", "tie_word_embeddings": False}
OTHERS["mistral"] = tiny_models.rope(1e4) | {"sliding_window": 12, "rms_norm_eps": 1e-5}
OTHERS["qwen3_5"] = {"hidden_size": 448, "intermediate_size": 1024, "head_dim": 64}  # 20 million parameters
OTHERS["qwen3_5"] |= {"layer_types": ["linear_attention", "linear_attention", "full_attention"]}
OTHERS["qwen3_5"] |= {"linear_num_key_heads": 4, "linear_num_value_heads": 8}
OTHERS["qwen3_5"] |= {"linear_key_head_dim": 64, "linear_value_head_dim": 64}
T5_VOCABULARY, DECODER_VOCABULARY = 32128, 32000
SETTINGS = {"training.batch_size": 4, "training.eval_batch_size": 8}


@functools.cache
def corpus():
    rows = real_text.bible_rows(6000, seed=0)
    return tuple(row[key] for row in rows for key in ("input", "target"))


class LongBench(Workbench):
    epsilon = 1e-8
    fused_adamw = True
    eval_rows_at_once = 16

    def make_tokenizer(self):
        if self.case.seq2seq:
            return small_tokenizers.make_sentencepiece(self.model, corpus(), PIECES)
        return small_tokenizers.make_byte_level(self.model, self.case.family, corpus(), PIECES)

    def make_model(self):
        vocabulary = T5_VOCABULARY if self.case.seq2seq else DECODER_VOCABULARY
        sizes = T5_SIZES if self.case.seq2seq else DECODER_SIZES
        sizes = sizes | OTHERS.get(self.case.family, {})
        model = tiny_models.random_model(self.case.family, vocabulary, **self.token_ids() | sizes)
        with torch.no_grad():
            for parameter in model.parameters():  # the runs in fp32 and in bf16 start from the same weights
                parameter.copy_(parameter.bfloat16())
        return model

    def make_adapter(self, model, task):
        """An adapter as PEFT initialises it: B is 0."""
        return get_peft_model(model, LoraConfig(task_type=task, lora_dropout=0.0, **self.case.lora))

    def make_rows(self, seed):
        rows = real_text.bible_rows(TRAIN_ROWS + EVAL_ROWS, seed, LONGEST)
        return rows[:TRAIN_ROWS], rows[TRAIN_ROWS:]

    @functools.cached_property
    def batches(self):
        return super().step_batches()

    def step_batches(self):
        return self.batches

    def train(self, program, dtype, name, changes):
        """Reads trainer's run from its output."""
        config = self.config(dtype, **SETTINGS | changes | {"output_dir": f"{dtype}-{name}"})
        rows = program.train(config, self.directory / f"{dtype}-{name}.yaml")
        evaluations = [row for row in rows if row["kind"] == "eval"]
        return Curve(
            losses=column(rows, "train", "loss"),
            grad_norms=column(rows, "train", "grad_norm"),
            learning_rates=column(rows, "train", "learning_rate"),
            supervised_tokens=column(rows, "train", "supervised_tokens"),
            weights=self.read_weights(self.directory / f"{dtype}-{name}"),
            evaluations=[our_evaluation(row) for row in evaluations],
        )

    def read_weights(self, directory):
        name = "adapter_model.safetensors" if self.case.lora else "model.safetensors"
        return {reference.canonical_name(key): value for key, value in load_file(directory / name).items()}

    def decay_groups(self, weights):
        undecayed = self.undecayed
        return {
            "with decay": [name for name in weights if name not in undecayed],
            "without decay": [name for name in weights if name in undecayed],
        }

    @functools.cached_property
    def undecayed(self):
        return set(reference.undecayed_names(self.load(torch.float32)))


def our_evaluation(row):
    tokens = row["eval_supervised_tokens"]
    return Evaluation(row["eval_loss"], round(row["eval_token_accuracy"] * tokens), tokens)
