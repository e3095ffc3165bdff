"""The command line of gpu_check: chooses the stages, runs them, and writes the report."""
import argparse
import os
import pathlib
import shutil
import sys
import time

from . import layout, machine, report
from .results import FAILED, PASSED, SKIPPED, Results

TINY_MODELS_BYTES = 1e9
MODELS_BYTES = 30e9  # the 8B, 0.6B and T5-XL shapes, and the largest result of a run


def parse(arguments, description):
    parser = argparse.ArgumentParser(prog="gpu_check", description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="list the stages and exit")
    parser.add_argument("--all", action="store_true", help="run all stages (the default)")
    parser.add_argument("--stage", action="append", metavar="NAME", help="run only this stage; can be repeated")
    parser.add_argument("--without", action="append", default=[], metavar="NAME", help="skip this stage; can be repeated")
    parser.add_argument("--again", action="store_true", help="run also the stages that are done")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--quick", action="store_true", help="use tiny shapes in all stages")
    parser.add_argument("--minutes", type=float, help="start no stage that is expected to end after so many minutes")
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


def run_stages(stages, every, options, found, results):
    """Runs the stages. Returns the names of those for which there was no time."""
    from .stage import carry_out
    begin, late = time.monotonic(), []
    plan = plan_of(options, found)
    for stage in stages:
        if not options.again and results.is_done(stage.name, plan):
            print(f"done     {stage.name:16} {results.stages[stage.name]['status']} earlier", flush=True)
            continue
        minutes = 0 if options.quick else stage.minutes
        if options.minutes and (time.monotonic() - begin) / 60 + minutes > options.minutes:
            late.append(stage.name)
            print(f"not run  {stage.name:16} it is expected to take {stage.minutes:g} min, and --minutes "
                  f"{options.minutes:g} are nearly over", flush=True)
            continue
        show(stage, carry_out(stage, options, found, results, plan))
        report.write(results, stages if options.stage else every, late)
    return late


def work(options):
    from .stages import ALL
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
            late = run_stages(stages, ALL, options, found, results)
        except KeyboardInterrupt:
            raise machine.Unusable("stopped; the same command continues with the stage that was interrupted", 130) from None
        finally:
            temporary = options.scratch if options.clean or options.quick else options.scratch / "runs"
            shutil.rmtree(temporary, ignore_errors=True)
            results.write()
            report.write(results, ALL if not options.stage else stages, late)
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
