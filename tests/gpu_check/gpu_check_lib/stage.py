"""A stage: what it checks and needs, and the functions that its code uses to check, measure and run programs."""
import dataclasses
import resource
import time
import traceback
import typing

from . import models, processes
from .results import FAILED, PASSED, SKIPPED

LIMIT = 480  # seconds of a stage
KEPT = 3     # failed logs in a result


class Skip(Exception):
    """Why a stage cannot run here."""


class Stop(Exception):
    """A check failed, and the rest of the stage depends on it."""


@dataclasses.dataclass
class Stage:
    name: str
    does: str  # one line for --list and the report
    function: typing.Callable
    minutes: float = 1  # expected time on a card
    needs_card: bool = False
    needs_bf16: bool = False
    gigabytes: float = 0  # free memory that it needs on the card
    packages: tuple = ()
    models: tuple = ()  # shapes that can be made while the stages before it run

    def why_not(self, machine, quick):
        """Why it cannot run on this machine; "" if it can."""
        if self.needs_card and machine["device"] == "cpu":
            return "there is no card (--device cpu)"
        if self.needs_bf16 and not machine["bf16"]:
            major = machine["card"]["capability"][0]
            return f"the card does not compute in bf16 (compute capability {major}.x, 8.0 is needed)"
        missing = [name for name in self.packages if machine[name] is None]
        if missing:
            return f"this Python has no package {' and '.join(missing)}"
        free = (machine["card"] or {}).get("free")
        if not quick and free is not None and free < self.gigabytes * 1e9:
            return f"needs {self.gigabytes:g} GB free on the card, which has {free / 1e9:.1f}"
        return ""


class Check:
    """The argument of a stage's function."""

    def __init__(self, options, machine, results, plan="", end=None):
        self.device, self.quick, self.scratch = options.device, options.quick, options.scratch
        self.machine, self.results, self.plan = machine, results, plan
        self.end = min(time.monotonic() + LIMIT, end or float("inf"))
        self.checks, self.figures, self.logs = [], {}, []

    def left(self):
        return max(1.0, self.end - time.monotonic())

    def expect(self, what, fine, found=""):
        """Checks one condition. Returns whether it holds."""
        self.checks.append({"what": what, "ok": bool(fine), "found": str(found)})
        return bool(fine)

    def need(self, what, fine, found=""):
        """Checks one condition, and ends the stage if it does not hold."""
        if not self.expect(what, fine, found):
            raise Stop

    def earlier(self, stage):
        """The figures of a stage that ran with the same sizes, card and build; {} if it did not run."""
        stored = self.results.stages.get(stage, {})
        return stored["figures"] if stored.get("plan") == self.plan else {}

    def figure(self, name, value):
        self.figures[name] = value

    def run(self, command, extra=None, limit=None):
        ended = processes.run(command, min(limit or LIMIT, self.left()), extra)
        self.keep(ended)
        return ended

    def keep(self, ended):
        self.results.log(ended.tail)
        if ended.code != 0:
            self.logs = [*self.logs, ended.tail][-KEPT:]

    def need_run(self, what, command, extra=None):
        ended = self.run(command, extra)
        self.need(f"{what} ends with exit code 0", ended.code == 0, "no end in time" if ended.code is None else ended.code)
        return ended

    @property
    def threads(self):
        """The threads of a run on the CPU. Tiny shapes gain nothing from more than one."""
        return 1 if self.quick else min(2, self.machine["cores"])

    def model(self, name):
        """The folder of a model, which is made if it does not exist."""
        return models.make(self.scratch, models.shape(name, self.quick), self.need_run)


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def carry_out(stage, options, machine, results, plan, end=None):
    """Runs one stage and stores what it found. A stage that is cut off at `end` (time.monotonic()) is skipped."""
    begin, before, check = time.monotonic(), processor_seconds(), Check(options, machine, results, plan, end)
    status, reason = PASSED, stage.why_not(machine, options.quick)
    results.log(f"\n=== {stage.name}")
    try:
        if reason:
            raise Skip(reason)
        stage.function(check)
    except Skip as error:
        status, reason = SKIPPED, str(error)
    except Stop:
        pass
    except Exception:  # an exception fails the stage, with its traceback
        check.expect("the stage runs to its end", False)
        check.logs.append(traceback.format_exc()[-processes.TAIL:])
        results.log(traceback.format_exc())
    if status == PASSED and not all(one["ok"] for one in check.checks):
        status = FAILED
    if status == FAILED and end is not None and time.monotonic() >= end:
        status, reason = SKIPPED, "it was cut off when the time was over (--minutes)"
    result = {"status": status, "reason": reason, "seconds": round(time.monotonic() - begin, 1), "plan": plan,
              "processor_seconds": round(processor_seconds() - before, 1),
              "checks": check.checks, "figures": check.figures, "logs": check.logs if status == FAILED else []}
    results.store(stage.name, result)
    return result
