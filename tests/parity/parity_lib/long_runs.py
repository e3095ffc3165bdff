"""Compares whole curves with Hugging Face's. The scale is how far two Hugging Face runs differ when they split the batch
in different ways."""

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
# The smallest scale that is used: one rounding step of fp32. For gradient norms it is larger, because Hugging Face's two
# runs share most of their error (both are off by 5e-7 from fp64, and trainer is not); it is a tenth of the 1e-5 that is
# allowed for single gradients.
ROUNDING = 2.0**-23
LEAST = {"gradient norms": 1e-6}
CURVES = {
    "losses": lambda run: run.losses,
    "gradient norms": lambda run: run.grad_norms,
    "evaluation losses": lambda run: [evaluation.loss for evaluation in run.evaluations],
}


def differences(curve, other):
    """The relative differences, step by step."""
    return [abs(a - b) / abs(b) for a, b in zip(curve, other, strict=True)]


def so_far(values, least):
    """The largest value up to each step, at least `least`. This is the scale of a step, because a difference stays in
    the weights and grows there."""
    result, largest = [], least
    for value in values:
        largest = max(largest, value)
        result.append(largest)
    return result


def times(ours, own, least):
    """The largest ratio, over all steps, of trainer's difference to the scale of the step."""
    return max(a / b for a, b in zip(ours, so_far(own, least), strict=True))


def rms(values):
    return (sum(value**2 for value in values) / len(values)) ** 0.5


class Comparison:
    """Compares trainer's runs of a case, in one dtype, with two Hugging Face runs."""

    def __init__(self, report, bench, dtype):
        self.report, self.bench, self.dtype = report, bench, dtype
        self.whole = bench.train_reference(DTYPES[dtype], WHOLE)
        self.others = [bench.train_reference(DTYPES[dtype], OTHER_CUT)]
        self.stepwise = dtype == "fp32" and not bench.case.relu
        if dtype == "fp32" and bench.case.relu:
            # If rounding changes the sign of a number near 0, the derivative of relu jumps, and so does the curve. Hugging
            # Face's forward pass has the same bits with either split, so both of its runs jump together.
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
        """The distance from the run with whole batches, or from `base`, of tensors with weight decay and of those without."""
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
            # In bfloat16 the rows of a product, and so Hugging Face's first losses, have the same bits with either split.
            # Other code rounds differently from the first step on.
            ratio = max(measured) / max(own)
        self.report.check(f"{cut}: {what}", ratio <= TIMES, f"{ratio:.1f} times HF's own (at most {TIMES}; {note})")
        return max(measured)

    def check_accuracy(self, what, ours):
        def off(run):
            return max(abs(a.right - b.right) for a, b in zip(run.evaluations, self.whole.evaluations))

        limit = TIMES * max(map(off, self.others))
        if self.dtype == "bf16":
            limit = max(limit, TIMES)  # with 8 bits, logits can be equal
        counts = [evaluation.right for evaluation in self.whole.evaluations]
        self.report.check(what, off(ours) <= limit, f"off by {off(ours)} (at most {limit}) of {counts}")

    def check_weights(self, cut, ours, measured, exact):
        """In bfloat16, compares with Hugging Face in float32, like the bfloat16 goldens. Hugging Face's two splits share
        most of their error, so a run that is closer to float32 than they are can be far from both."""
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
        """Like the bfloat16 goldens: trainer's error may be 1.5 times Hugging Face's."""
        own = rms(differences(self.whole.losses, exact.losses))
        measured = rms(differences(ours.losses, exact.losses))
        self.record["own"]["distance to fp32"] = own
        self.record[cut]["distance to fp32"] = measured
        self.report.at_most(f"{cut}: distance to HF in float32", measured, 1.5 * own, f"HF in bfloat16 {own:.1e}")


def check_yardstick(report, own, recorded):
    """Checks that the scale has not grown, because a large scale lets anything pass."""
    for what, difference in own.items():
        limit = TIMES * max(recorded.get(what, 0.0), ROUNDING)
        report.at_most(f"HF's own {what}", difference, limit, "10 times what is recorded")


def check_stochastic_rounding(report, bench, program, exact):
    """Weights and moments in bfloat16. trainer rounds stochastically and Hugging Face to the nearest, so trainer must be
    closer to the run in float32."""
    theirs = bench.train_reference(torch.bfloat16, WHOLE, master_weights=False)
    ours = bench.train(program, "bf16", "rounded", CUTS["samples"])
    for what, curve in CURVES.items():
        own = rms(differences(curve(theirs), curve(exact)))
        measured = rms(differences(curve(ours), curve(exact)))
        report.at_most(f"all in bfloat16, distance of {what} to float32", measured, own, "Hugging Face's")


def run_case(report, program, bench, recorded):
    """Does all runs of a case. `recorded`: earlier results, or {}. Returns the new results, by the name of the case and
    the dtype."""
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
