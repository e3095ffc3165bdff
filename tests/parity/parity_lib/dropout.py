"""Compares dropout with Hugging Face's: losses and gradient norms have the same distribution over many masks."""

import torch

from . import reference, texts
from .cases import Case
from .comparison import column, relative
from .workbench import ROWS, Workbench

DRAWS = 300
STANDARD_ERRORS = 4  # seeds are fixed, so the result never changes. By chance, 1 in 16,000 is further off.
# All steps have the same batch and a tiny learning rate (the program refuses 0).
STILL = {"schedule": "constant", "warmup": 0, "steps": DRAWS, "learning_rate": 1e-9, "weight_decay": 0.0}
# For T5 in full fine-tuning. It is high so that a missing dropout shows; with 0.1 a few hundred losses are not enough.
RATE = 0.5
MODEL_DROPOUT = {"training.dropout": None}  # the value of its config.json
ALL_LINEAR = {"r": 4, "lora_alpha": 8, "target_modules": "all-linear", "lora_dropout": 0.2}
CASES = [
    Case("t5_v1_1_dropout", "t5_v1_1", changes=MODEL_DROPOUT, **STILL),
    Case("t5_v1_0_lora_dropout", "t5_v1_0", ALL_LINEAR, changes=MODEL_DROPOUT, **STILL),
    Case("qwen2_lora_dropout", "qwen2", ALL_LINEAR, **STILL),
]
OTHER_CUTS = {
    "one sample at a time": {"training.batch_size": 1},
    "by tokens": {"training.micro_batching": "tokens"},
    "recomputing": {"memory.gradient_checkpointing": True},
}


ONLY_LONG = {"t5_v1_0_lora_dropout"}


def selected(short, name_part):
    return [
        case
        for case in CASES
        if name_part in case.name and not (short and not name_part and case.name in ONLY_LONG)
    ]


class OneBatch(Workbench):
    def make_rows(self, seed):
        rows = texts.rows(self.case.effective_batch_size, seed)
        return rows, rows

    def sizes(self):
        return super().sizes() | ({} if self.case.lora else {"dropout_rate": RATE})

    def run(self, program, name, **changes):
        config = self.config(**changes | {"output_dir": name, "training.eval_strategy": "no"})
        del config["training"]["eval_steps"]
        rows = program.train(config, self.directory / f"{name}.yaml")
        return column(rows, "train", "loss"), column(rows, "train", "grad_norm")

    def draws(self):
        """Hugging Face's losses and gradient norms under DRAWS masks."""
        torch.manual_seed(1)
        model, batch = self.load(torch.float32), self.step_batches()[0]
        model.train()
        parameters = list(reference.trained_parameters(model).values())
        losses, norms = [], []
        for _ in range(DRAWS):
            model.zero_grad()
            losses.append(reference.backward(model, batch))
            norms.append(reference.clip(parameters, 0))
        return losses, norms


def moments(values):
    """Mean and variance, each with its squared standard error."""
    values = torch.tensor(values, dtype=torch.float64)
    variance = values.var()
    fourth = (values - values.mean()).pow(4).mean()
    return (values.mean(), variance / len(values)), (variance, (fourth - variance**2) / len(values))


def standard_errors(one, other):
    """How many standard errors two estimates are apart."""
    return (abs(one[0] - other[0]) / (one[1] + other[1]) ** 0.5).item()


def check_distribution(report, what, ours, theirs):
    for moment, a, b in zip(("mean", "variance"), moments(ours), moments(theirs), strict=True):
        note = f"ours {a[0]:.3g}, HF {b[0]:.3g}"
        apart = standard_errors(a, b)
        report.check(f"{moment} of {what}", apart <= STANDARD_ERRORS, f"{apart:.1f} standard errors apart ({note})")


def run_case(report, program, bench):
    losses, norms = bench.run(program, "out")
    their_losses, their_norms = bench.draws()
    check_distribution(report, f"{DRAWS} losses", losses, their_losses)
    check_distribution(report, f"{DRAWS} gradient norms", norms, their_norms)
    for cut, changes in OTHER_CUTS.items():
        name = cut.replace(" ", "-")
        other_losses, other_norms = bench.run(program, name, **changes | {"training.max_steps": 20})
        off = max(relative(other_losses, losses[:20]), relative(other_norms, norms[:20]))
        if cut == "recomputing":
            report.check("losses and gradient norms, recomputing", off == 0, "the same bits")
        else:
            report.at_most(f"losses and gradient norms, {cut}", off, 1e-5, f"micro-batches of {ROWS} against others")
