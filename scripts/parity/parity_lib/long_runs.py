"""Whole curves against Hugging Face's, measured by how far Hugging Face is from itself with another cut of the batch."""

import torch

from . import reference
from .comparison import relative

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
WHOLE, OTHER_CUT = 8, 2  # rows of the micro-batches in Hugging Face's two runs
CUTS = {
    "samples": {"training.micro_batching": "samples"},
    "tokens": {"training.micro_batching": "tokens", "memory.gradient_checkpointing": True},
}
TIMES = 10
# The least yardstick. One step of fp32; for gradient norms more, as Hugging Face's two runs share most of their error:
# against fp64 they are 5e-7 off and ours are not, and a tenth of the 1e-5 that single gradients are held to.
ROUNDING = 2.0**-23
LEAST = {"gradient norms": 1e-6}
CURVES = {
    "losses": lambda run: run.losses,
    "gradient norms": lambda run: run.grad_norms,
    "evaluation losses": lambda run: [evaluation.loss for evaluation in run.evaluations],
}


def differences(curve, other):
    """Relative, step by step."""
    return [abs(a - b) / abs(b) for a, b in zip(curve, other, strict=True)]


def so_far(values, least):
    """The largest value up to each step, at least `least`. A difference stays in the weights and grows there: the
    yardstick of a step is the largest difference up to it."""
    result, largest = [], least
    for value in values:
        largest = max(largest, value)
        result.append(largest)
    return result


def times(ours, own, least):
    """The largest ratio of our difference at a step to Hugging Face's own up to it."""
    return max(a / b for a, b in zip(ours, so_far(own, least), strict=True))


def rms(values):
    return (sum(value**2 for value in values) / len(values)) ** 0.5


class Comparison:
    """Our runs of a case in one type against Hugging Face's two."""

    def __init__(self, report, bench, dtype):
        self.report, self.bench, self.dtype = report, bench, dtype
        self.whole = bench.train_reference(DTYPES[dtype], WHOLE)
        self.others = [bench.train_reference(DTYPES[dtype], OTHER_CUT)]
        self.stepwise = dtype == "fp32" and not bench.case.relu
        if dtype == "fp32" and bench.case.relu:
            # Where a number within rounding of 0 takes the other sign, the derivative of relu jumps, and so does the
            # curve. With another cut Hugging Face's forward pass has the same bits, so that both runs jump together.
            self.others.append(bench.train_reference(torch.float64, WHOLE))
        self.record = {"schedule": bench.case.schedule, "steps": bench.case.steps}
        self.record["clipped"] = sum(norm > bench.case.max_grad_norm for norm in self.whole.grad_norms)
        self.record["loss"] = [self.whole.losses[0], self.whole.losses[-1]]
        self.record["own"] = {
            what: max(max(differences(curve(other), curve(self.whole))) for other in self.others)
            for what, curve in CURVES.items()
        }
        self.record["own"]["final weights"] = max(self.own_weight_distances().values())

    def own_weight_distances(self):
        distances = [self.weight_distances(other) for other in self.others]
        return {what: max(each[what] for each in distances) for what in distances[0]}

    def weight_distances(self, run, base=None):
        """From the whole batch's run or `base`, of the tensors with weight decay and of those without."""
        base = base or self.whole
        return {
            what: reference.relative_error(
                {name: run.weights[name] for name in names}, {name: base.weights[name] for name in names}
            )["overall"]
            for what, names in self.bench.decay_groups(run.weights).items()
            if names
        }

    def check(self, cut, ours, exact):
        self.report.equal(f"{cut}: supervised tokens", ours.supervised_tokens, self.whole.supervised_tokens)
        rates = relative(ours.learning_rates, self.whole.learning_rates)
        self.report.at_most(f"{cut}: learning rates", rates, 1e-12)
        measured = self.record[cut] = {}
        for what, curve in CURVES.items():
            measured[what] = self.check_curve(cut, what, curve(ours), curve(self.whole), list(map(curve, self.others)))
        self.check_accuracy(f"{cut}: right tokens in evaluation", ours)
        self.check_weights(cut, ours, measured, exact)

    def check_curve(self, cut, what, ours, whole, others):
        if len(ours) != len(whole):
            self.report.equal(f"{cut}: {what}, how many", len(ours), len(whole))
            return None
        own = [max(step) for step in zip(*(differences(other, whole) for other in others))]
        measured = differences(ours, whole)
        note = f"ours {max(measured):.1e}, HF itself {max(own):.1e}"
        if self.stepwise:
            ratio = times(measured, own, LEAST.get(what, ROUNDING))
        else:
            # With another cut the rows of a bfloat16 product are the same bits, and Hugging Face's first losses too;
            # in other code each rounding falls elsewhere from the first step on.
            ratio = max(measured) / max(own)
        self.report.check(f"{cut}: {what}", ratio <= TIMES, f"{ratio:.1f} times HF's own (at most {TIMES}; {note})")
        return max(measured)

    def check_accuracy(self, what, ours):
        def off(run):
            return max(abs(a.right - b.right) for a, b in zip(run.evaluations, self.whole.evaluations))

        limit = TIMES * max(map(off, self.others))
        if self.dtype == "bf16":
            limit = max(limit, TIMES)  # logits of 8 bits tie
        counts = [evaluation.right for evaluation in self.whole.evaluations]
        self.report.check(what, off(ours) <= limit, f"off by {off(ours)} (at most {limit}) of {counts}")

    def check_weights(self, cut, ours, measured, exact):
        """In bfloat16 against Hugging Face in float32, in the sense of the bfloat16 goldens: its two cuts share most of
        their error, and whoever is nearer to float32 than they are is as far from them as they are from it."""
        if ours.weights.keys() != self.whole.weights.keys():
            self.report.equal(f"{cut}: names of the weights", sorted(ours.weights), sorted(self.whole.weights))
            return
        own, off = self.own_weight_distances(), self.weight_distances(ours)
        measured["final weights"] = max(off.values())
        if self.dtype == "bf16":
            theirs = self.weight_distances(self.whole, exact)
            for what, distance in self.weight_distances(ours, exact).items():
                note = f"HF in bfloat16 {theirs[what]:.1e}"
                self.report.at_most(f"{cut}: final weights {what}, to float32", distance, 1.5 * theirs[what], note)
            return
        for what, distance in off.items():
            note = f"HF itself {own[what]:.1e}"
            self.report.at_most(f"{cut}: final weights {what}", distance, TIMES * max(own[what], ROUNDING), note)

    def check_distance_to_fp32(self, cut, ours, exact):
        """In the sense of the bfloat16 goldens: our error is at most 1.5 times Hugging Face's."""
        own = rms(differences(self.whole.losses, exact.losses))
        measured = rms(differences(ours.losses, exact.losses))
        self.record["own"]["distance to fp32"] = own
        self.record[cut]["distance to fp32"] = measured
        self.report.at_most(f"{cut}: distance to HF in float32", measured, 1.5 * own, f"HF in bfloat16 {own:.1e}")


def check_yardstick(report, own, recorded):
    """A yardstick that has grown would let anything pass."""
    for what, difference in own.items():
        limit = TIMES * max(recorded.get(what, 0.0), ROUNDING)
        report.at_most(f"HF's own {what}", difference, limit, "10 times what is recorded")


def check_stochastic_rounding(report, bench, program, exact):
    """Weights and moments in bfloat16, ours rounded stochastically, Hugging Face's to the nearest: ours are the nearer
    ones to the run in float32."""
    theirs = bench.train_reference(torch.bfloat16, WHOLE, master_weights=False)
    ours = bench.train(program, "bf16", "rounded", CUTS["samples"])
    for what, curve in CURVES.items():
        own = rms(differences(curve(theirs), curve(exact)))
        measured = rms(differences(curve(ours), curve(exact)))
        report.at_most(f"all in bfloat16, distance of {what} to float32", measured, own, "Hugging Face's")


def run_case(report, program, bench, recorded):
    """All runs of a case. `recorded`: what was measured before, {} if nothing. Returns what was measured now, by the
    name of the case and the type."""
    measured, exact = {}, None
    for dtype in DTYPES:
        report.case = f"{bench.case.name}_{dtype}"
        comparison = Comparison(report, bench, dtype)
        exact = exact or comparison.whole
        for cut, changes in CUTS.items():
            if dtype == "bf16" and not bench.case.lora:
                changes = changes | {"optimizer.master_weights": True}
            ours = bench.train(program, dtype, cut, changes)
            comparison.check(cut, ours, exact)
            if dtype == "bf16":
                comparison.check_distance_to_fp32(cut, ours, exact)
        if dtype == "bf16" and bench.case.bf16_state:
            check_stochastic_rounding(report, bench, program, exact)
        measured[report.case] = comparison.record
        if report.case in recorded:
            check_yardstick(report, comparison.record["own"], recorded[report.case]["own"])
    return measured
