"""A Qwen3-8B shape with LoRA: speed and memory, also with less memory, next to Transformers and PEFT."""
from .. import peers, training
from ..stage import Stage

SHAPE = "qwen3-8b"
STEPS = 10
# Allowed differences in bf16 for the same samples, with another order of sums or other kernels.
BF16_FIRST, BF16_ALL, BF16_NORM = 1e-3, 2e-3, 5e-2
QUANTISED_FIRST = 2e-2
LIMIT = "24GB"


def case(check):
    """2 x 2048 tokens."""
    if check.quick:
        return {"data.max_length": 64, "training.batch_size": 2, "training.effective_batch_size": 2,
                "training.max_steps": 5}
    return {"data.max_length": 2048, "training.batch_size": 2, "training.effective_batch_size": 2,
            "training.max_steps": STEPS}


def keys(check, name, **changes):
    bf16 = {"model.dtype": "bf16"}
    output = training.output_of(check, name)
    return training.settings(check, SHAPE, output, **{**bf16, **training.LORA, **case(check), **changes})


def run(check, name, extra=None, **changes):
    return training.need_train(check, name, keys(check, name, **changes), extra)


def stored(check):
    """The figures of the stage 8b-lora. If it has not run, it runs now."""
    figures = check.earlier("8b-lora").get("runs", {}).get("8B LoRA", {})
    if figures.get("steps") == case(check)["training.max_steps"]:
        return figures
    return run(check, "8B LoRA").figures


def near(check, what, figures, expected):
    training.expect_near(check, f"{what}, the first loss", figures["losses"][:1], expected["losses"][:1], BF16_FIRST)
    training.expect_near(check, f"{what}, the first gradient's norm", figures["grad_norms"][:1], expected["grad_norms"][:1],
                         BF16_NORM)
    training.expect_near(check, f"{what}, all losses", figures["losses"], expected["losses"], BF16_ALL)


def expect_plan(check, figures):
    """If a plan is too low, the run runs out of memory; if it is far too high, runs that would fit are refused. Tiny
    shapes take a few MB, of which one tensor of ids is a percent."""
    ratio, below = figures["planned"] / figures["peak"], 5 if check.quick else 2
    check.expect(f"the planned peak is between {below} % below and 10 % above the measured one",
                 1 - below / 100 <= ratio <= 1.10,
                 f"planned {figures['planned'] / 1e9:.4f} GB, measured {figures['peak'] / 1e9:.4f} GB")


def lora(check):
    found = run(check, "8B LoRA")
    check.figure("files", found.files)
    expect_plan(check, found.figures)
    check.expect("nothing ran out of memory", not found.of("recovery"), found.of("recovery"))
    check.expect("FlashAttention does not stand in for cuDNN", "FlashAttention is used instead" not in found.text)


def light(check):
    """Chunks of logits have other sizes, and so may sums within them."""
    found = run(check, "8B LoRA, light", **{"memory.gradient_checkpointing": "light"})
    expected = stored(check)
    near(check, "as with everything kept", found.figures, expected)
    expect_plan(check, found.figures)
    check.expect("it takes less memory", found.figures["peak"] < expected["peak"],
                 f"{found.figures['peak'] / 1e9:.4f} of {expected['peak'] / 1e9:.4f} GB")


def recompute(check):
    found = run(check, "8B LoRA, recompute", **{"memory.gradient_checkpointing": "true"})
    near(check, "as without recompute", found.figures, stored(check))
    expect_plan(check, found.figures)


def in_four_bits(check):
    """The base in NF4, as a card of 16 GB needs it. The first loss is near that of the base in bf16, the others are its own."""
    sizes = {"model.quantize": "nf4", "memory.gradient_checkpointing": "true", "optimizer.name": "adamw_8bit"}
    found = run(check, "8B LoRA on NF4, recompute", **sizes)
    expect_plan(check, found.figures)
    training.expect_near(check, "the first loss of the base in bf16", found.figures["losses"][:1], stored(check)["losses"][:1],
                         QUANTISED_FIRST)


def in_fp8(check):
    """Codes are multiplied on cards that can, otherwise both runs widen them."""
    for title, sizes, extra in (("", {}, {}), (", recompute", {"memory.gradient_checkpointing": "true"}, {}),
                                (", widened", {}, {"TRAINER_FP8_PRODUCTS": "off"})):
        found = run(check, f"8B LoRA on FP8{title}", extra, **{"model.quantize": "fp8", **sizes})
        expect_plan(check, found.figures)
        training.expect_near(check, f"8B LoRA on FP8{title}: the first loss of the base in bf16", found.figures["losses"][:1],
                             stored(check)["losses"][:1], QUANTISED_FIRST)
        check.expect("weights are not widened instead", "Widening weights to bf16 is used instead" not in found.text)


def offloaded(check):
    recompute = run(check, "8B LoRA, recompute once more", **{"memory.gradient_checkpointing": "true"})
    found = run(check, "8B LoRA, offloaded weights and activations", **{"memory.offload": "[weights, activations]"})
    expect_plan(check, found.figures)
    training.expect_same_rows(check, "8B LoRA: offloaded as recomputed", found.figures, recompute.figures)


def dropout(check):
    plain = run(check, "8B LoRA, dropout", **{"lora.lora_dropout": 0.05})
    again = run(check, "8B LoRA, dropout, recompute", **{"lora.lora_dropout": 0.05, "memory.gradient_checkpointing": "true"})
    near(check, "with recompute the dropout is the same", again.figures, plain.figures)
    expect_plan(check, plain.figures)


def limited(check):
    """0.8 of a tiny shape's peak is less than one sample takes with all blocks recomputed: most of it are weights and
    logits."""
    expected = stored(check)
    share = 0.9 if check.quick else 0.8
    limit = LIMIT if not check.quick and expected["peak"] > 24e9 else f"{share * expected['peak'] / 1e3:.0f}kB"
    if check.device == "cuda" and check.quick:
        limit = f"{(share * expected['peak'] + training.CONTEXT) / 1e6:.0f}MB"
    found = run(check, "8B LoRA, limit", **{"memory.limit": limit})
    rows = found.figures["recoveries"]
    check.figure("limit", limit)
    check.expect(f"memory.limit={limit} makes it recover", rows, len(rows))
    check.expect("the peak stays below the limit", found.figures["peak"] <= found.figures["limit"],
                 f"{found.figures['peak'] / 1e9:.3f} of {found.figures['limit'] / 1e9:.3f} GB")
    near(check, "as without a limit", found.figures, expected)


def repeat(check):
    """Compares rows and results bit by bit. The earlier run may be that of the stage 8b-lora."""
    found = run(check, "8B LoRA, again")
    expected, files = stored(check), check.earlier("8b-lora").get("files")
    if not files:
        once_more = run(check, "8B LoRA, once more")
        expected, files = once_more.figures, once_more.files
    check.figure("first step that differs", training.expect_same_rows(check, "8B LoRA", found.figures, expected))
    check.expect("8B LoRA: the same adapter, bit by bit", found.files == files and files)


def graphs(check):
    """The first two steps are launched, the third is recorded."""
    found = run(check, "8B LoRA, as a graph", {"TRAINER_GRAPHS": "on"})
    # Only rows of small models are padded.
    launched = run(check, "8B LoRA, launched", {"TRAINER_GRAPHS": "launched"}).figures if check.quick else stored(check)
    training.expect_same_rows(check, "8B LoRA: as a graph as launched", found.figures, launched)


def ordered_cudnn(check):
    """cuDNN's passes in a fixed order, which only a Hopper uses, are those of 8b-lora; here are FlashAttention's."""
    for title, value in (("FlashAttention's backward pass", "forward"), ("FlashAttention alone", "off")):
        found = run(check, f"8B LoRA, {title}", {"TRAINER_CUDNN_ATTENTION": value})
        near(check, title, found.figures, stored(check))
        expect_plan(check, found.figures)


def setting(title, changes, extra=None):
    """A run with another allocator setting must have the same losses. Its speed is recorded."""
    def stage(check):
        found = run(check, f"8B LoRA, {title}", extra, **changes)
        near(check, "as with the defaults", found.figures, stored(check))
    return stage


def lengths(check):
    """Samples of many lengths: in one row, padded, and padded with sums in any order, where each micro-batch has a shape of
    its own; and rows of many short samples, for each of which attention needs room of its own."""
    rows = {"data.train": check.model(SHAPE) / "spread.jsonl", "training.effective_batch_size": 8, "training.batch_size": 2}
    packed = run(check, "8B LoRA, spread lengths", **rows)
    rows["data.packing"] = "false"
    padded = run(check, "8B LoRA, spread lengths, padded", **rows)
    near(check, "packed as padded", packed.figures, padded.figures)
    free = run(check, "8B LoRA, spread lengths, padded, deterministic=false", **rows, **{"training.deterministic": "false"})
    near(check, "as with sums in a fixed order", free.figures, padded.figures)
    sizes = (16, 8, 64) if check.quick else (64, 32, 64)
    names = ("data.max_length", "training.batch_size", "training.effective_batch_size")
    short = run(check, "8B LoRA, short samples", **{"data.train": check.model(SHAPE) / "short.jsonl", **dict(zip(names, sizes))})
    for found in (packed, short):
        expect_plan(check, found.figures)
        check.expect("nothing ran out of memory", not found.of("recovery"), found.of("recovery"))


def peer_case(check):
    sizes = case(check)
    return {"model": str(check.model(SHAPE)), "device": check.device, "kind": "decoder", "length": sizes["data.max_length"],
            "rows": sizes["training.batch_size"], "steps": 4 if check.quick else 8, "dtype": "bf16", "lora": True,
            "threads": check.threads}


def peer(check):
    """Compiled by layer on a card only: on the CPU it would take a C++ compiler, and minutes."""
    how = {"bf16_adapters": True, **({"compile": "layers"} if check.device == "cuda" else {})}
    figures = peers.measure(check, "8B LoRA", {**peer_case(check), "variants": [
        {"name": "fp32 adapters"}, {"name": "bf16 adapters, by layer", **how},
        {"name": "bf16 adapters, by layer, ordered", **how, "ordered": True}]})
    ours = stored(check)
    theirs = figures["fp32 adapters"]
    training.expect_near(check, "ours and the peer's, the first loss", ours["losses"][:1], theirs["losses"][:1], BF16_FIRST)
    check.figure("first gradient's norm, ours and the peer's", [ours["grad_norms"][0], *theirs.get("grad_norms", [])[:1]])


def peer_more(check):
    peers.measure(check, "8B LoRA", {**peer_case(check), "variants": [
        {"name": "bf16 adapters", "bf16_adapters": True}, {"name": "fp32 adapters, recompute", "recompute": True},
        {"name": "bf16 adapters, recompute", "bf16_adapters": True, "recompute": True}]})


def liger(check):
    peers.measure(check, "8B LoRA, Liger", {**peer_case(check), "liger": True, "variants": [
        {"name": "bf16 adapters", "bf16_adapters": True}]})


def compiled(check):
    peers.measure(check, "8B LoRA, compiled", {**peer_case(check), "variants": [
        {"name": "bf16 adapters, torch.compile", "bf16_adapters": True, "compile": True}]})


def stage(name, does, function, minutes, gigabytes=60, packages=()):
    return Stage(name, does, function, minutes, needs_bf16=True, gigabytes=gigabytes, packages=packages, models=(SHAPE,))


FIRST = [
    stage("8b-lora", "Qwen3-8B shape, LoRA r 16 on all linear layers, bf16, 2 x 2048: tok/s, planned and measured peak", lora, 1.2),
    stage("8b-light", "the same with what is quick to compute made again: the same losses, less memory", light, 0.7),
    stage("8b-recompute", "the same with all blocks recomputed: the same losses, less memory", recompute, 1),
    stage("8b-limit", "the same with memory.limit=24GB: it recovers, with the same losses", limited, 1.2, 40),
    stage("8b-graphs", "the same with passes as CUDA graphs (TRAINER_GRAPHS=on): the same bits, tok/s", graphs, 0.8),
    stage("8b-cudnn", "the same with FlashAttention in place of cuDNN's backward pass, and of both (TRAINER_CUDNN_ATTENTION): near losses, tok/s",
          ordered_cudnn, 2),
    stage("8b-fp8", "the base in FP8, as it is and recomputed, and with widened weights: near losses, tok/s, planned and measured peak", in_fp8, 2.2),
    stage("8b-repeat", "the same once more: the same bits", repeat, 1),
]
PEER = [
    stage("8b-peer", "Transformers + PEFT on it: SDPA, fused AdamW, as it is and compiled by layer, also in a fixed order", peer, 1.8, 80,
          ("transformers", "peft")),
    stage("8b-liger", "the same with Liger-Kernel", liger, 0.8, 80, ("transformers", "peft", "liger_kernel")),
]
PEER_MORE = [
    stage("8b-peer-more", "Transformers + PEFT with bf16 adapters, and with recompute", peer_more, 2, 80, ("transformers", "peft")),
]
SETTINGS = [
    stage("8b-no-clearing", "memory.empty_cache_steps=0: tok/s", setting("empty_cache_steps=0", {"memory.empty_cache_steps": 0}), 0.8),
    stage("8b-segments", "memory.expandable_segments=false: tok/s", setting("expandable_segments=false",
                                                                            {"memory.expandable_segments": "false"}), 0.8),
    stage("8b-atomics", "training.deterministic=false: tok/s",
          setting("deterministic=false", {"training.deterministic": "false"}), 0.8),
    stage("8b-bf16-sums", "TRAINER_BF16_SUMS=on: tok/s", setting("TRAINER_BF16_SUMS=on", {}, {"TRAINER_BF16_SUMS": "on"}), 0.8),
    stage("8b-nf4", "the base in NF4, 8-bit AdamW, recomputed: tok/s, planned and measured peak", in_four_bits, 0.8, 24),
    stage("8b-offload", "weights and activations in the host's memory: the bits of recompute, tok/s", offloaded, 1.5, 40),
    stage("8b-packing", "samples of many lengths, packed, padded and in free order: the same losses, tok/s; plans", lengths, 3),
    stage("8b-dropout", "with dropout, recomputed and not: the same losses", dropout, 1.6),
    Stage("8b-compiled", "Transformers + PEFT with torch.compile", compiled, 5, needs_card=True, needs_bf16=True, gigabytes=80,
          packages=("transformers", "peft"), models=(SHAPE,)),
]
