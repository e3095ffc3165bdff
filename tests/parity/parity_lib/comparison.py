"""The checks of the parity runs."""

import unicodedata

import torch
from peft import PeftConfig, PeftModel
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

from . import reference, texts

LOSS_TOLERANCE = 1e-5
NEW_TOKENS = 24


def relative(ours, theirs):
    """The largest relative difference of two lists of numbers; infinite if their lengths differ."""
    if len(ours) != len(theirs):
        return float("inf")
    return max(abs(a - b) / max(abs(b), 1e-30) for a, b in zip(ours, theirs))


def rms(ours, theirs):
    return (sum((a - b) ** 2 for a, b in zip(ours, theirs)) / len(theirs)) ** 0.5


def column(rows, kind, key):
    return [row[key] for row in rows if row.get("kind") == kind and key in row]


def check_training(report, bench, rows):
    """Compares the curve of trainer's run with Hugging Face in float64. Its float32 run shows the effect of rounding."""
    exact = bench.train_reference(torch.float64)
    single = [bench.train_reference(torch.float32, cut) for cut in (3, 1)]
    report.equal("supervised tokens of each step", column(rows, "train", "supervised_tokens"), exact.supervised_tokens)
    rates = relative(column(rows, "train", "learning_rate"), exact.learning_rates)
    report.at_most("learning rates", rates, 1e-12)
    for what, key in (("losses", "loss"), ("gradient norms", "grad_norm")):
        theirs = getattr(exact, {"loss": "losses", "grad_norm": "grad_norms"}[key])
        own = max(relative(getattr(run, {"loss": "losses", "grad_norm": "grad_norms"}[key]), theirs) for run in single)
        measured = relative(column(rows, "train", key), theirs)
        report.at_most(f"{what} of {len(theirs)} steps", measured, LOSS_TOLERANCE, f"HF in float32 {own:.1e}")
    losses = column(rows, "eval", "eval_loss")[-1:]
    report.at_most("evaluation loss", relative(losses, [exact.evaluations[-1].loss]), LOSS_TOLERANCE)
    return exact, single


def check_weights(report, trained, exact, single):
    """The final weights may be three times as far from Hugging Face in float64 as its own float32 run is."""
    if trained.keys() != exact.weights.keys():
        report.equal("names of the trained tensors", sorted(trained), sorted(exact.weights))
        return
    own = max(reference.relative_error(run.weights, exact.weights)["overall"] for run in single)
    ours = reference.relative_error(trained, exact.weights)["overall"]
    report.at_most("final weights", ours, 3 * own, f"HF in float32 {own:.1e}")


def load_output(bench):
    """Loads trainer's files with Transformers and PEFT. Returns the model and their complaints, {} if there are none."""
    kind = AutoModelForSeq2SeqLM if bench.case.seq2seq else AutoModelForCausalLM
    base = bench.model if bench.case.lora else bench.output
    model, info = kind.from_pretrained(base, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    reference.freeze_images(model)
    complaints = {key: sorted(map(str, value)) for key, value in info.items() if value}
    if bench.case.lora:
        config = PeftConfig.from_pretrained(bench.output)
        if config.base_model_name_or_path != str(bench.model):
            complaints["base_model_name_or_path"] = config.base_model_name_or_path
        model = PeftModel.from_pretrained(model, bench.output, is_trainable=True)
        result = model.load_adapter(bench.output, "default", is_trainable=True)
        complaints |= {"missing": result.missing_keys} if result.missing_keys else {}
        complaints |= {"unexpected": result.unexpected_keys} if result.unexpected_keys else {}
    return model.eval(), complaints


def tensor_names(file):
    with safe_open(file, "pt") as tensors:
        return sorted(tensors.keys())


def check_files(report, bench):
    """The tensors must be those that Hugging Face saves, without the frozen weights that PEFT adds if an embedding or a
    head is a target."""
    name = "adapter_model.safetensors" if bench.case.lora else "model.safetensors"
    theirs = tensor_names((bench.adapter or bench.model) / name)
    theirs = [tensor for tensor in theirs if not tensor.endswith(".base_layer.weight")]
    report.equal(f"tensors in {name}", tensor_names(bench.output / name), theirs)


def check_output(report, bench, rows, exact, single):
    check_files(report, bench)
    model, complaints = load_output(bench)
    report.equal("loaded by Transformers and PEFT, complaints", complaints, {})
    check_weights(report, reference.weights(model), exact, single)
    theirs = bench.evaluate(model).loss
    ours = column(rows, "eval", "eval_loss")[-1:]
    report.at_most("evaluation loss of our files in HF", relative(ours, [theirs]), LOSS_TOLERANCE)
    return model


def check_generation(report, bench, program, model):
    prompts = [row["input"] for row in bench.eval_rows]
    ids = [bench.tokenizer(prompt).input_ids for prompt in prompts]
    new = [reference.generate(model, prompt, NEW_TOKENS) for prompt in ids]
    theirs = [bench.tokenizer.decode(row, skip_special_tokens=True) for row in new]
    ours = program.generate(bench.output, prompts, NEW_TOKENS, bench.directory / "prompts.jsonl")
    report.equal(f"generated texts, {len(set(theirs))} different", ours, theirs)


def covers(text, ours, theirs):
    rest = text[ours[0] : theirs[0]] + text[theirs[1] : ours[1]] if theirs[0] < theirs[1] else text[ours[0] : ours[1]]
    within = theirs[0] == theirs[1] or ours[0] <= theirs[0] and theirs[1] <= ours[1]
    return within and all(c.isspace() or unicodedata.combining(c) for c in rest)


def check_offsets(report, bench, program, samples):
    """Compares token ranges. trainer's include the spaces and combining marks of a token. A token without text may have
    any empty range."""
    encoded = [bench.tokenizer(text, return_offsets_mapping=True) for text in samples]
    theirs = [[(begin, end) for begin, end in row.offset_mapping] for row in encoded]
    ours = [[(begin, end) for begin, end in row] for row in program.offsets(bench.model, samples, bench.directory / "texts.jsonl")]
    tokens = [(text, a, b) for text, row, other in zip(samples, ours, theirs) for a, b in zip(row, other)]
    differing = [f"\n    {text!r}: ours {a}, HF {b}" for text, a, b in tokens if not covers(text, a, b)]
    equal = not differing and [len(row) for row in ours] == [len(row) for row in theirs]
    report.check(f"offsets of {len(tokens)} tokens", equal, "".join(differing[:5]))


def check_tokenizer(report, bench, program):
    samples = texts.ODD_TEXTS + [row[key] for row in bench.train_rows for key in ("input", "target")]
    theirs = [bench.tokenizer(text).input_ids for text in samples]
    ours = program.tokenize(bench.model, samples, bench.directory / "texts.jsonl")
    differing = [f"\n    {text!r}: ours {a}, HF {b}" for text, a, b in zip(samples, ours, theirs) if a != b]
    report.check(f"token ids of {len(samples)} texts", ours == theirs, "".join(differing))
    check_offsets(report, bench, program, samples)
    decoded = [bench.tokenizer.decode(ids, skip_special_tokens=True) for ids in theirs]
    back = program.decode(bench.model, theirs, bench.directory / "ids.jsonl")
    differing = [f"\n    ours {a!r}, HF {b!r}" for a, b in zip(back, decoded) if a != b]
    report.check("decoded texts", back == decoded, "".join(differing))


def check_bf16(report, bench, rows):
    """Losses of many batches may be 1.5 times as far from Hugging Face in float32 as its own bfloat16 run is."""
    exact = bench.reference_losses(torch.float32)
    own = rms(bench.reference_losses(torch.bfloat16), exact)
    measured = rms(column(rows, "train", "loss"), exact)
    report.at_most(f"losses of {len(exact)} steps in bfloat16", measured, 1.5 * own, f"HF in bfloat16 {own:.1e}")


def check_fresh_adapter(report, bench, rows):
    """An adapter that trainer initialised: it changes nothing at first, PEFT loads it, and its A has PEFT's distribution."""
    start = reference.load_model(bench.model)
    batch = bench.step_batches()[0]
    with torch.no_grad():
        total = reference.token_losses(*reference.supervised_logits(start, batch)).item()
    losses = column(rows, "train", "loss")
    first = [total / reference.supervised_tokens(start, batch)]
    report.at_most("first loss is the base model's", relative(losses[:1], first), LOSS_TOLERANCE)
    check_files(report, bench)
    model, complaints = load_output(bench)
    report.equal("loaded by Transformers and PEFT, complaints", complaints, {})
    theirs = bench.evaluate(model).loss
    ours = column(rows, "eval", "eval_loss")[-1:]
    report.at_most("evaluation loss of our files in HF", relative(ours, [theirs]), LOSS_TOLERANCE)
    # kaiming_uniform_(a=sqrt(5)): uniform in +-1/sqrt(fan_in), the standard deviation of which is that / sqrt(3).
    a = {n: w * w.shape[1] ** 0.5 for n, w in reference.weights(model).items() if "lora_A" in n}
    values = torch.cat([w.flatten() for w in a.values()])
    moved = bench.case.steps * bench.case.learning_rate * 10
    report.at_most("largest A, in its bound", values.abs().max().item(), 1 + moved)
    report.at_most("spread of A off", abs(values.std().item() * 3**0.5 - 1), 0.05)
    b = [w for n, w in reference.weights(model).items() if "lora_B" in n]
    report.check("every B moved", all(w.abs().max() > 0 for w in b), f"{len(b)} matrices")
