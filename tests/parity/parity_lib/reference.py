"""Hugging Face models in a plain training loop, with the loss and the optimizer groups that `trainer` has.

A batch is {"input_ids": [[...], ...], "labels": [[...], ...]}, ragged and unpadded. Encoder-decoder models: source and
target. Decoders: labels are as long as input_ids, with -100 for tokens that are not learned.
"""

import contextlib
import json
from pathlib import Path

import torch
import torch.nn.functional as F
from peft import PeftModel
from torch.overrides import TorchFunctionMode
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForSeq2SeqLM,
    BitsAndBytesConfig,
    Trainer,
)

IGNORE = -100


class KeepFloat64(TorchFunctionMode):
    """Transformers upcasts norms, softmax and rotary angles to float32, which rounds a float64 model. Inside this
    context these casts do not change float64 tensors, so that the whole run is in float64."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        tensor = args[0] if args else None
        if isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float64:
            if func is torch.Tensor.float:
                return tensor
            if func is torch.Tensor.to:
                args = tuple(torch.float64 if a is torch.float32 else a for a in args)
            if kwargs.get("dtype") is torch.float32:
                kwargs["dtype"] = torch.float64
        return func(*args, **kwargs)


def precision_of(model):
    """The context in which to run `model`: real float64 if its weights are float64."""
    float64 = any(p.dtype == torch.float64 for p in model.parameters())
    return KeepFloat64() if float64 else contextlib.nullcontext()


def kind_of(config):
    if hasattr(config, "vision_config"):
        return AutoModelForImageTextToText
    return AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM


def freeze_images(model):
    """Freezes T5Gemma 2's vision tower, which trainer leaves as it is."""
    if model.config.model_type == "t5gemma2":
        for part in (model.model.encoder.vision_tower, model.model.encoder.multi_modal_projector):
            part.requires_grad_(False)


def load_model(directory, dtype=torch.float32, adapter=None):
    """The model in evaluation mode (no dropout) with eager attention. Anything missing or unexpected in the files is
    an error. With an adapter only its weights are trained, otherwise all weights (of the text half)."""
    config = AutoConfig.from_pretrained(directory)
    kind = kind_of(config)
    loading_dtype = torch.bfloat16 if dtype == torch.bfloat16 else torch.float32
    model, info = kind.from_pretrained(
        directory, dtype=loading_dtype, attn_implementation="eager", output_loading_info=True
    )
    wrong = {key: value for key, value in info.items() if value}
    if wrong:
        raise RuntimeError(f"{directory}: {wrong}")
    if adapter is not None:
        model = PeftModel.from_pretrained(model, adapter, is_trainable=True)
    elif hasattr(config, "vision_config"):
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name.startswith(("model.language_model.", "lm_head.")))
    else:
        freeze_images(model)
    if dtype == torch.float64:
        model.double()
    return model.eval()


def load_quantised(directory, dtype, adapter=None, double_quant=True):
    """The model in NF4 by bitsandbytes, quantised while it is loaded, computing in `dtype`."""
    from bitsandbytes.nn import Linear4bit

    config = AutoConfig.from_pretrained(directory)
    kind = kind_of(config)
    settings = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=double_quant,
        bnb_4bit_compute_dtype=dtype,
    )
    options = {"dtype": dtype, "attn_implementation": "eager", "device_map": "cpu"}
    model = kind.from_pretrained(directory, quantization_config=settings, **options)
    for module in model.modules():
        if isinstance(module, Linear4bit):  # no other layout, with scales in bfloat16, for inference
            module.support_avx512bf16_for_cpu = False
    if adapter is not None:
        model = PeftModel.from_pretrained(model, adapter, is_trainable=True)
    return model.eval()


def canonical_name(name):
    """A parameter's name without PEFT's additions: the prefix, the adapter's name, and the wrapper of a saved module or of
    a module with an adapter."""
    name = name.removeprefix("base_model.model.").replace("lora_magnitude_vector.default.weight", "lora_magnitude_vector")
    name = name.replace("lm_head.out_proj.", "lm_head.")  # T5Gemma's, which is lm_head in trainer
    for wrapper in (".modules_to_save.default.", ".base_layer.", ".default."):
        name = name.replace(wrapper, ".")
    return name.removesuffix(".default")


def trained_parameters(model):
    return {canonical_name(n): p for n, p in model.named_parameters() if p.requires_grad}


def pad(rows, value):
    longest = max(len(row) for row in rows)
    return torch.tensor([row + [value] * (longest - len(row)) for row in rows])


def forget_lengths(model):
    """Returns whether the rotary embedding depends on the length of the sequences (types dynamic and longrope). Type
    dynamic keeps the longest sequence that it has seen; it is reset here."""
    if model.config.is_encoder_decoder:
        return False
    config = model.config.get_text_config()
    rope = config.rope_parameters
    kinds = [rope] if "rope_type" in rope else rope.values()  # Gemma 3: one for each type of layer
    if all(kind["rope_type"] not in ("dynamic", "longrope") for kind in kinds):
        return False
    body = next(module for module in model.modules() if hasattr(module, "rotary_emb"))
    body.rotary_emb = type(body.rotary_emb)(config=config)
    return True


def supervised_logits(model, batch):
    """Logits [n, vocab] that predict the supervised labels, in sample order, and those labels [n]. With a rotary embedding
    of type dynamic or longrope the samples go one by one, because Hugging Face uses the padded length and `trainer` each sample's own."""
    if forget_lengths(model) and len(batch["input_ids"]) > 1:
        parts = [supervised_logits(model, sample) for sample in cut(batch, 1)]
        return tuple(torch.cat(tensors) for tensors in zip(*parts))
    input_ids = pad(batch["input_ids"], 0)
    mask = pad([[1] * len(row) for row in batch["input_ids"]], 0)
    labels = pad(batch["labels"], IGNORE)
    with precision_of(model):
        if model.config.is_encoder_decoder:
            shifted = model.prepare_decoder_input_ids_from_labels(labels=labels)
            logits = model(input_ids=input_ids, attention_mask=mask, decoder_input_ids=shifted, use_cache=False).logits
        else:
            logits = model(input_ids=input_ids, attention_mask=mask, use_cache=False).logits[:, :-1]
            labels = labels[:, 1:]
    supervised = labels != IGNORE
    return logits[supervised], labels[supervised]


def token_losses(logits, labels, label_smoothing=0.0):
    """The SUM of token losses, with label smoothing as in transformers.trainer_pt_utils.LabelSmoother."""
    if logits.dtype == torch.bfloat16:
        logits = logits.float()
    plain = F.cross_entropy(logits, labels, reduction="sum")
    if not label_smoothing:
        return plain
    uniform = -F.log_softmax(logits, dim=-1).mean(dim=-1).sum()
    return (1 - label_smoothing) * plain + label_smoothing * uniform


def cut(batch, rows):
    """Micro-batches of at most `rows` samples in order."""
    size = len(batch["input_ids"])
    return [{key: batch[key][at : at + rows] for key in ("input_ids", "labels")} for at in range(0, size, rows)]


def supervised_tokens(model, batch):
    first = 0 if model.config.is_encoder_decoder else 1
    return sum(label != IGNORE for row in batch["labels"] for label in row[first:])


def backward(model, batch, rows=None, label_smoothing=0.0):
    """Gradients of the loss of an effective batch (sum of token losses / its supervised tokens), accumulated over
    micro-batches of `rows` samples. Returns the loss."""
    count = supervised_tokens(model, batch)
    total = 0.0
    for micro_batch in cut(batch, rows or len(batch["input_ids"])):
        loss = token_losses(*supervised_logits(model, micro_batch), label_smoothing) / count
        loss.backward()
        total += loss.item()
    return total


class MasterWeights:
    """The tensors that the optimizer updates: a float32 copy of each trained bfloat16 weight, and other weights themselves.
    If copies are not `wanted`, all weights themselves."""

    def __init__(self, model, wanted=True):
        def master(p):
            return p.detach().float().requires_grad_() if wanted and p.dtype == torch.bfloat16 else p

        self.pairs = [(p, master(p)) for p in model.parameters() if p.requires_grad]

    def updated(self):
        return [master for _, master in self.pairs]

    def take_gradients(self):
        for parameter, master in self.pairs:
            if master is not parameter:
                master.grad = parameter.grad.float()

    def give_weights(self):
        with torch.no_grad():
            for parameter, master in self.pairs:
                if master is not parameter:
                    parameter.copy_(master)


def clip(parameters, max_norm):
    """clip_grad_norm_ with a norm that is summed in pieces, because PyTorch's float32 norm of 4 million elements is 1e-4
    too small on the CPU. With 0 it does not clip. Returns the norm."""
    norm = torch.nn.utils.get_total_norm([piece for p in parameters for piece in p.grad.split(128)])
    if max_norm:
        torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    return norm.item()


def parameter_groups(model, weight_decay, masters=None):
    """AdamW's groups by Hugging Face Trainer's rule: no weight decay for norms and for names with "bias" in them (also T5's
    relative attention bias)."""
    decayed = set(Trainer.get_decay_parameter_names(None, model))
    copies = {id(parameter): master for parameter, master in masters.pairs} if masters else {}
    named = [(n, copies.get(id(p), p)) for n, p in model.named_parameters() if p.requires_grad]
    return [
        {"params": [p for n, p in named if n in decayed], "weight_decay": weight_decay},
        {"params": [p for n, p in named if n not in decayed], "weight_decay": 0.0},
    ]


def undecayed_names(model):
    decayed = set(Trainer.get_decay_parameter_names(None, model))
    return sorted(canonical_name(n) for n, p in model.named_parameters() if p.requires_grad and n not in decayed)


def gradients(model):
    return {n: p.grad.detach().clone() for n, p in trained_parameters(model).items()}


def weights(model):
    return {n: p.detach().clone() for n, p in trained_parameters(model).items()}


def relative_error(actual, expected):
    """Relative 2-norm errors: {"overall": over all tensors together, "tensors": {name: error}}."""
    if actual.keys() != expected.keys():
        raise ValueError(f"different tensors: {sorted(actual.keys() ^ expected.keys())}")
    off, size, tensors = 0.0, 0.0, {}
    for name in sorted(expected):
        difference = (actual[name].double() - expected[name].double()).norm().item()
        norm = expected[name].double().norm().item()
        tensors[name] = difference / norm if norm else difference
        off, size = off + difference**2, size + norm**2
    return {"overall": (off / size) ** 0.5, "tensors": tensors}


def start_token(model):
    """The first token of an encoder-decoder's answers."""
    start = getattr(model.config, "decoder_start_token_id", None)
    return model.config.decoder.bos_token_id if start is None else start


def generate(model, prompt, max_new_tokens):
    """The greedy continuation of one prompt: the new token ids, with the end token if there is one."""
    forget_lengths(model)
    # Without a mask T5Gemma's decoder does not see tokens of its answer that equal pad_token_id.
    seen = {"decoder_attention_mask": torch.ones(1, 1, dtype=torch.int64)} if model.config.model_type == "t5gemma" else {}
    with torch.no_grad():
        ids = model.generate(
            input_ids=torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
            max_new_tokens=max_new_tokens,
            do_sample=False,
            num_beams=1,
            # HF makes too few layers of it if T5's decoder is deeper than the encoder
            use_cache=not model.config.is_encoder_decoder,
            **seen,
        )[0].tolist()
    return ids[1:] if model.config.is_encoder_decoder else ids[len(prompt) :]


def write_json(path, value):
    Path(path).write_text(json.dumps(value, indent=1, sort_keys=True) + "\n")
