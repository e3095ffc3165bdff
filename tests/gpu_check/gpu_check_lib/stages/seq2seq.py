"""A FLAN-T5-XL shape, full and LoRA, with its dropout of 0.1, next to Transformers (and PEFT)."""
from .. import peers, training
from ..stage import Stage
from .decoder import expect_plan, near

SHAPE = "flan-t5-xl"
STEPS = 8


def case(check):
    """8 x 512 source and 128 target tokens, the size of the tables in benchmarks/NOTES.md."""
    if check.quick:
        return {"data.max_source_length": 48, "data.max_target_length": 16, "training.batch_size": 2,
                "training.effective_batch_size": 2, "training.max_steps": 4}
    return {"data.max_source_length": 512, "data.max_target_length": 128, "training.batch_size": 8,
            "training.effective_batch_size": 8, "training.max_steps": STEPS}


def run(check, name, changes, extra=None):
    keys = training.settings(check, SHAPE, training.output_of(check, name), **{"model.dtype": "bf16", **case(check), **changes})
    return training.need_train(check, name, keys, extra)


def trained(name, changes):
    def stage(check):
        found = run(check, name, changes)
        expect_plan(check, found.figures)
        check.expect("nothing ran out of memory", not found.of("recovery"), found.of("recovery"))
    return stage


def graphs(check):
    """Dropout's keys change from step to step in the memory that the graph reads. Rows are padded to few forms both times."""
    launched, graph = (run(check, f"T5-XL LoRA, {way}", training.LORA, extra).figures
                       for way, extra in (("launched", {"TRAINER_GRAPHS": "launched"}), ("as a graph", {"TRAINER_GRAPHS": "on"})))
    training.expect_same_rows(check, "T5-XL LoRA: as a graph as launched", graph, launched)


def lengths(check):
    """Samples of many lengths, padded as by default on a GPU, and packed."""
    rows = {**training.LORA, "data.train": check.model(SHAPE) / "spread.jsonl",
            "training.effective_batch_size": 8 if check.quick else 32}
    runs = []
    for title, packing in (("", "false"), (", packing", "true")):
        runs.append(run(check, f"T5-XL LoRA, spread lengths{title}", {**rows, "data.packing": packing}).figures)
    near(check, "packed as padded", runs[1], runs[0])


def shared(check):
    sizes = case(check)
    return {"model": str(check.model(SHAPE)), "device": check.device, "kind": "seq2seq", "dtype": "bf16",
            "length": sizes["data.max_source_length"], "target_length": sizes["data.max_target_length"],
            "rows": sizes["training.batch_size"], "steps": 4 if check.quick else 6, "threads": check.threads}


def peer_full(check):
    peers.measure(check, "T5-XL full", {**shared(check), "lora": False, "variants": [
        {"name": "bf16 weights and states"}, {"name": "bf16 weights and states, recompute", "recompute": True}]})


def peer_lora(check):
    peers.measure(check, "T5-XL LoRA", {**shared(check), "lora": True, "variants": [
        {"name": "fp32 adapters"}, {"name": "bf16 adapters", "bf16_adapters": True}]})


def stage(name, does, function, minutes, gigabytes, packages=()):
    return Stage(name, does, function, minutes, needs_bf16=True, gigabytes=gigabytes, packages=packages, models=(SHAPE,))


STAGES = [
    stage("t5xl-full", "FLAN-T5-XL shape, all weights, bf16, 8 x 512 + 128, dropout: tok/s, planned and measured peak",
          trained("T5-XL full", {}), 1.2, 60),
    stage("t5xl-lora", "the same with LoRA r 16 on all linear layers", trained("T5-XL LoRA", training.LORA), 0.8, 40),
    stage("t5xl-graphs", "the same launched and as CUDA graphs (TRAINER_GRAPHS=on): the same bits, tok/s", graphs, 1.4, 40),
    stage("t5xl-packing", "the same with samples of many lengths, padded and packed: the same losses, tok/s", lengths, 1.4, 40),
    stage("t5xl-full-peer", "Transformers on the first, with and without recompute", peer_full, 1.2, 80, ("transformers",)),
    stage("t5xl-lora-peer", "Transformers + PEFT on the second", peer_lora, 1.2, 80, ("transformers", "peft")),
]
