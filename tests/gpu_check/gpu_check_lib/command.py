"""The command line of gpu_check: chooses the stages, runs them, and writes the report."""
import argparse
import os
import pathlib
import shutil
import sys
import time

from . import ahead, layout, machine, models, report, since
from .results import FAILED, PASSED, SKIPPED, Results

TINY_MODELS_BYTES = 1e9
MINUTES = 12  # by default on a card: they are lent for little more
MODELS_BYTES = 30e9  # the 8B, 0.6B and T5-XL shapes, and the largest result of a run


def parse(arguments, description):
    parser = argparse.ArgumentParser(prog="gpu_check", description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="list the stages and exit")
    parser.add_argument("--all", action="store_true", help=f"run all stages on a card, not only for {MINUTES} minutes")
    parser.add_argument("--stage", action="append", metavar="NAME", help="run only this stage; can be repeated")
    parser.add_argument("--without", action="append", default=[], metavar="NAME", help="skip this stage; can be repeated")
    parser.add_argument("--again", action="store_true", help="run also the stages that are done")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--quick", action="store_true", help="use tiny shapes in all stages")
    parser.add_argument("--minutes", type=float, help="end after so many minutes, making models included; 0: whenever it is "
                        f"done (default: {MINUTES} on a card, unless --all, --stage or --quick is given)")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(os.environ.get("OUT") or "gpu_check_out"),
                        help="folder for the results (default: $OUT, or gpu_check_out)")
    parser.add_argument("--earlier", action="append", default=[], type=pathlib.Path, metavar="FILE",
                        help="results.json of an earlier start: its stages count as done; can be repeated")
    parser.add_argument("--scratch", type=pathlib.Path, help="folder for models and runs (default: the first of "
                        "/dev/shm, $TMPDIR and --out with room for them)")
    parser.add_argument("--clean", action="store_true", help="remove the models at the end")
    return parser.parse_args(arguments)


def chosen(options, stages):
    known = [stage.name for stage in stages]
    unknown = [name for name in [*(options.stage or []), *options.without] if name not in known]
    if unknown:
        raise machine.Unusable(f"no stage {unknown[0]}; there are: {', '.join(known)}", 2)
    return [stage for stage in stages if stage.name in (options.stage or known) and stage.name not in options.without]


def minutes_of(options):
    """The minutes after which it ends; None: there is no such limit."""
    if options.minutes is not None:
        return options.minutes or None
    return None if options.device == "cpu" or options.quick or options.all or options.stage else MINUTES


def expected(stage, options, found, last):
    """The minutes that a stage will take: those of the last report on such a card, or an estimate."""
    if options.quick:
        return 0
    seconds = since.seconds_of(last, stage.name, found)
    return seconds / 60 if seconds else stage.minutes


def to_be_made(stages, options, found, results):
    """The models of the stages that will run, in the order in which they are needed."""
    plan, names = plan_of(options, found), []
    for stage in stages:
        if not stage.why_not(found, options.quick) and (options.again or not results.is_done(stage.name, plan)):
            names += [name for name in stage.models if name not in names]
    return [models.shape(name, options.quick) for name in names]


def show_list(stages, results):
    for stage in stages:
        state = results.stages.get(stage.name, {}).get("status", "")
        print(f"{stage.name:16} {stage.minutes:4.1f} min  {state:8} {stage.does}")


def show(stage, result):
    detail = result["reason"] or "; ".join(one["what"] + (f": {one['found']}" if one["found"] else "")
                                           for one in result["checks"] if not one["ok"])
    print(f"{result['status']:8} {stage.name:16} {result['seconds']:6.1f} s  {detail[:400]}", flush=True)


def plan_of(options, found):
    """What results belong to: results of other sizes, of another card or of another build are no results of this one."""
    card = f", {found['card']['name']}" if found["card"] else ""
    return f"{options.device}{', quick' if options.quick else ''}{card}, build {layout.build()}"


def run_stages(stages, every, options, found, results, begin, last):
    """Runs the stages. Returns the names of those for which there was no time. A later one that is short enough still runs."""
    from .stage import carry_out
    late, minutes, plan = [], minutes_of(options), plan_of(options, found)
    end = begin + 60 * minutes if minutes else None
    for stage in stages:
        if not options.again and results.is_done(stage.name, plan):
            print(f"done     {stage.name:16} {results.stages[stage.name]['status']} earlier", flush=True)
            continue
        takes = expected(stage, options, found, last)
        if end and time.monotonic() + 60 * takes > end:
            late.append(stage.name)
            print(f"not run  {stage.name:16} it is expected to take {takes:.1f} min, and the {minutes:g} minutes are nearly over",
                  flush=True)
            continue
        show(stage, carry_out(stage, options, found, results, plan, end))
        report.write(results, stages if options.stage else every, late, last)
    return late


def work(options):
    from .stages import ALL
    begin, last = time.monotonic(), since.read()
    results = Results(options.out, options.earlier)
    stages = chosen(options, ALL)
    if options.list:
        show_list(stages, results)
        return 0
    found = machine.look(options.device)
    results.machine, results.quick = found, options.quick
    needed = TINY_MODELS_BYTES if options.quick else MODELS_BYTES
    options.scratch = machine.scratch_folder(options.scratch, options.out.resolve(), needed, lasting=not options.quick)
    with machine.lock(options.scratch):
        print(report.first_line(found), flush=True)
        late = []
        try:
            with ahead.Ahead(options.scratch, to_be_made(stages, options, found, results)):
                late = run_stages(stages, ALL, options, found, results, begin, last)
        except KeyboardInterrupt:
            raise machine.Unusable("stopped; the same command continues with the stage that was interrupted", 130) from None
        finally:
            temporary = options.scratch if options.clean or options.quick else options.scratch / "runs"
            shutil.rmtree(temporary, ignore_errors=True)
            results.write()
            since.write(results)
            report.write(results, ALL if not options.stage else stages, late, last)
    count = results.count([stage.name for stage in stages])
    kept = f"; models stay in {options.scratch} (--clean removes them)" if options.scratch.exists() else ""
    print(f"report: {options.out / 'REPORT.md'}{kept}")
    print(f"{count[PASSED]} passed, {count[FAILED]} failed, {count[SKIPPED]} skipped" +
          (f", {len(late)} not run" if late else ""))
    return 1 if count[FAILED] else 0


def main(arguments, description):
    options = parse(arguments, description)
    try:
        return work(options)
    except machine.Unusable as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code
