#!/usr/bin/env python3
"""peer CASE: a plain loop over Transformers + PEFT with their fastest settings: SDPA (with Flash Attention where possible),
fused AdamW, bf16 autocast for fp32 adapters, no mask if all rows have the same length; with "liger", with Liger-Kernel.
A variant may be compiled as a whole or by layer, and "ordered": sums in a fixed order, as ours are by default.

CASE is JSON. The model is loaded once. For each variant it prints one line of JSON: tokens per second, peak memory, losses.
A variant with "profile" also has its top kernels."""
import contextlib
import gc
import json
import os
import pathlib
import sys
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it, cuBLAS refuses an "ordered" variant
import torch  # noqa: E402
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, PreTrainedTokenizerFast  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from gpu_check_lib import kernels  # noqa: E402

WARM_UP = 2
T5 = ["q", "k", "v", "o", "wi_0", "wi_1", "wo"]
DECODER = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def batches(case):
    """The rows of every step, in file order, truncated to the length of the case."""
    folder = pathlib.Path(case["model"])
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    encode = lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]  # noqa: E731
    with open(folder / "rows.jsonl", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    out = []
    for step in range(case["steps"]):
        here = [rows[(step * case["rows"] + i) % len(rows)] for i in range(case["rows"])]
        if case["kind"] == "seq2seq":
            ids = [encode(row["input"])[:case["length"] - 1] + [1] for row in here]
            labels = [encode(row["target"])[:case["target_length"] - 1] + [1] for row in here]
        else:
            ids = labels = [encode(row["text"])[:case["length"]] for row in here]
        out.append({"input_ids": torch.tensor(ids), "labels": torch.tensor(labels)})
    return out


def load(case):
    kind = AutoModelForSeq2SeqLM if case["kind"] == "seq2seq" else AutoModelForCausalLM
    dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[case["dtype"]]
    try:
        model = kind.from_pretrained(case["model"], dtype=dtype, attn_implementation="sdpa")
    except (ValueError, ImportError):
        model = kind.from_pretrained(case["model"], dtype=dtype)
    if case.get("liger"):
        from liger_kernel.transformers.monkey_patch import _apply_liger_kernel_to_instance
        _apply_liger_kernel_to_instance(model=model)  # its rotation, norms, gates, and head with the loss
    model.config.use_cache = False
    model.to(case["device"])
    if case["lora"]:
        import peft
        seq2seq = case["kind"] == "seq2seq"
        # r, alpha and layers as in gpu_check_lib.training.LORA
        model = peft.get_peft_model(model, peft.LoraConfig(
            r=16, lora_alpha=32, task_type="SEQ_2_SEQ_LM" if seq2seq else "CAUSAL_LM",
            target_modules=T5 if seq2seq else DECODER))
    return model.train()


def prepare(model, variant):
    """Sets the dtype of the adapters and recompute as in this variant. Returns the trained parameters."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if "bf16_adapters" in variant:
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.data = parameter.data.to(torch.bfloat16)
    torch.use_deterministic_algorithms(bool(variant.get("ordered")), warn_only=False)
    if variant.get("recompute"):
        model.gradient_checkpointing_enable({"use_reentrant": False})
    else:
        model.gradient_checkpointing_disable()
    return trained


def layers(model):
    """The blocks of the model's stacks, below PEFT's wrapper."""
    return [layer for module in model.modules() if isinstance(module, torch.nn.ModuleList)
            and len(module) and type(module[0]).__name__.endswith(("DecoderLayer", "T5Block")) for layer in module]


def compile_layers(model, wanted):
    """Compiles each block by itself, which takes seconds, where the whole model takes minutes. All blocks share the code."""
    for layer in layers(model):
        if wanted:
            layer.compile()
        else:
            layer._compiled_call_impl = None


def step(case, model, forward, optimizer, trained, batch, amp):
    inputs = {name: tensor.pin_memory().to(case["device"], non_blocking=True) if case["device"] == "cuda" else tensor
              for name, tensor in batch.items()}
    with amp():
        loss = forward(**inputs).loss
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(trained, 1.0, foreach=True)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item(), norm


def autocast(case, trained):
    """fp32 adapters on a bf16 model compute in bf16, as under Trainer with bf16=True."""
    if case["dtype"] == "bf16" and trained[0].dtype == torch.float32:
        return lambda: torch.autocast(case["device"], dtype=torch.bfloat16)
    return contextlib.nullcontext


def supervised(case, batch):
    first = 0 if case["kind"] == "seq2seq" else 1
    return batch["labels"][:, first:].numel()


def measure(case, variant, model, rows):
    trained = prepare(model, variant)
    forward = torch.compile(model) if variant.get("compile") is True else model
    compile_layers(model, variant.get("compile") == "layers")
    optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0.0, fused=True)
    amp = autocast(case, trained)
    if case["device"] == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    seconds, losses, norms = [], [], []
    profiler = kernels.profiler(case["device"]) if variant.get("profile") else contextlib.nullcontext()
    with profiler:
        for batch in rows:
            begin = time.perf_counter()
            loss, norm = step(case, model, forward, optimizer, trained, batch, amp)
            losses.append(loss)
            norms.append(norm)
            seconds.append(time.perf_counter() - begin)
    counted = sum(supervised(case, batch) for batch in rows[WARM_UP:])
    figures = {"tokens_per_second": counted / sum(seconds[WARM_UP:]), "losses": losses,
               "grad_norms": [norm.item() for norm in norms],
               "step_seconds": sorted(seconds[WARM_UP:])[len(seconds[WARM_UP:]) // 2]}
    if case["device"] == "cuda":
        figures |= {"peak": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}
    if variant.get("profile"):
        figures["profile"] = kernels.summary(profiler, len(rows))
    return figures


def main():
    case = json.loads(sys.argv[1])
    torch.set_num_threads(case["threads"])
    rows, model = batches(case), load(case)
    # Variants with fp32 adapters come first, because bf16 adapters cannot be turned back into fp32.
    for variant in sorted(case["variants"], key=lambda one: "bf16_adapters" in one):
        try:
            figures = measure(case, variant, model, rows)
        except Exception as error:  # the next variant may still run
            figures = {"error": f"{type(error).__name__}: {error}"[:500]}
        print(json.dumps({"variant": variant["name"], **figures}), flush=True)
        model.zero_grad(set_to_none=True)
        gc.collect()


if __name__ == "__main__":
    main()
