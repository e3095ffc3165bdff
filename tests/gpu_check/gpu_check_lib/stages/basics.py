"""Checks the machine, trainer doctor, NVRTC (which compiles the kernels), and the unit tests on a card."""
import json
import pathlib
import platform
import re
import shutil

from .. import layout
from ..stage import Skip, Stage

LOADER = pathlib.Path("/lib64/ld-linux-x86-64.so.2")
FOUND = 9  # exit code of compute-sanitizer if it found something
SANITIZERS = ("compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer", "/usr/local/cuda/compute-sanitizer/compute-sanitizer")


def doctor(check):
    ended = check.run([layout.program(), "doctor", "--json"])
    check.need("trainer doctor ends with exit code 0", ended.code == 0, ended.code)
    report = json.loads(ended.text[ended.text.index("{"):ended.text.rindex("}") + 1])
    check.expect("it says that a run could start", report["ready"], report["ready"])
    for line in report["checks"]:
        check.expect(f"{line['name']}: {line['text']}".splitlines()[0], line["verdict"] != "failed", line["verdict"])
    if check.device == "cuda":
        texts = " ".join(line["text"] for line in report["checks"] if line["name"] in ("gpu", "cuda"))
        check.expect("it names the card", check.machine["card"]["name"] in texts, texts[:200])
    check.figure("doctor", [f"{line['verdict']:8} {line['name']:13} {line['text'].splitlines()[0]}" for line in report["checks"]])


def test_programs(pattern):
    """The test programs that have tests with this in their names."""
    names = json.loads((layout.TESTS / "programs.json").read_text()) if layout.BUNDLED else None
    if names is None:
        sources = layout.ROOT / "tests"
        names = sorted({path.parent.name for path in sources.glob("*/*_test.cpp") if re.search(pattern, path.read_text())})
    found = [layout.TESTS / f"test_{name}" for name in names]
    return [path for path in found if path.exists()]


def count_tests(text):
    """(passed, failed, skipped, run) of gtest's output."""
    number = lambda words: int((re.search(rf"\[  {words} *\] (\d+) test", text) or [0, 0])[1])  # noqa: E731
    ran = int((re.search(r"(\d+) tests? from \d+ test suites? ran", text) or [0, 0])[1])
    return number("PASSED"), number("FAILED"), number("SKIPPED"), ran


def run_tests(check, pattern, before=(), extra=None):
    """Runs these tests in every program that has any. Returns how many passed, failed and were skipped, and the output."""
    programs = test_programs(pattern)
    if not programs:
        raise Skip(f"there are no test programs in {layout.TESTS}")
    passed = failed = skipped = 0
    text = ""
    for program in programs:
        ended = check.run([*before, program, f"--gtest_filter=*{pattern}*"], extra)
        one = count_tests(ended.text)
        text += ended.text
        if not check.expect(f"{program.name}: its tests pass", ended.code == 0 and one[1] == 0 and one[0] + one[2] == one[3],
                            f"{one[0]} passed, {one[1]} failed, {one[2]} skipped, exit code {ended.code}"):
            check.logs += [ended.tail]
        passed, failed, skipped = passed + one[0], failed + one[1], skipped + one[2]
    check.figure("tests", {"passed": passed, "failed": failed, "skipped": skipped})
    return passed, failed, skipped, text


def nvrtc(check):
    """Runs with a loader that looks only in the folders of the program, of LibTorch and of the system. A CUDA toolkit could
    otherwise be found through the loader's cache or the user's LD_LIBRARY_PATH."""
    if not LOADER.exists():
        raise Skip(f"no {LOADER} on this machine")
    log = check.scratch / "loader"
    for old in check.scratch.glob("loader.*"):
        old.unlink()
    hidden = (LOADER, "--inhibit-cache")
    passed, failed, skipped, text = run_tests(check, "ByNvrtc", hidden, {
        "LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": str(log), "LD_LIBRARY_PATH": ":".join(layout.libraries())})
    if passed + failed == 0:
        why = re.search(r"there is no libnvrtc.*", text)
        raise Skip(why[0] if why else f"{skipped} tests skipped themselves")
    opened = set()
    for path in check.scratch.glob("loader.*"):
        opened |= set(re.findall(r"calling init: (\S*libnvrtc\S*)", path.read_text(errors="replace")))
        path.unlink()
    packages = layout.torch_folder().parent
    outside = sorted(path for path in opened if packages.resolve() not in pathlib.Path(path).resolve().parents)
    check.expect("all of NVRTC comes from the Python packages", opened and not outside, outside or sorted(opened))


def unit_tests(check):
    """On a card, a skipped test is a failure; without one, a test that passes has the wrong name."""
    passed, _, skipped, text = run_tests(check, "OnAGpu")
    if check.device == "cpu":
        check.need("all skip themselves without a card", passed == 0, f"{passed} passed")
        raise Skip(f"there is no card (--device cpu): {skipped} tests started and skipped themselves")
    check.expect("no test skipped itself", skipped == 0, "; ".join(sorted(set(re.findall(r"Skipped\n(.*)", text)))) or skipped)
    check.expect("some passed", passed > 0, passed)


# Kernels of cuBLAS, cuDNN and LibTorch. Racecheck does not know the barriers of Hopper's asynchronous copies and products,
# which they use.
LIBRARIES = re.compile(r"nvjet|cudnn|cublas|cutlass|gemm|flash|at::")


def kernels_with_errors(text):
    """The kernels that compute-sanitizer names: (of the libraries, all others)."""
    named = sorted(set(re.findall(r"=+ .*? access at (.+?)\+0x[0-9a-f]+", text)))
    return [name for name in named if LIBRARIES.search(name)], [name for name in named if not LIBRARIES.search(name)]


def sanitized(tool):
    def stage(check):
        found = next((path for path in map(shutil.which, SANITIZERS) if path), None)
        if found is None:
            raise Skip("compute-sanitizer is not on this machine")
        before = (found, "--tool", tool, "--error-exitcode", str(FOUND), "--print-limit", "1000")
        for program in test_programs("OnAGpu"):
            ended = check.run([*before, program, "--gtest_filter=*OnAGpu*"])
            if "Device not supported" in ended.text:
                raise Skip("compute-sanitizer does not support this machine: Device not supported")
            if "terminated before first instrumented API call" in ended.text:
                check.expect(f"{program.name}: its tests use the card", False, "they call no function of CUDA")
                continue
            summary = re.findall(r"========= (.*SUMMARY.*)", ended.text)
            theirs, others = kernels_with_errors(ended.text)
            shown = ended.text.count("Race reported") == int((re.search(r"(\d+) hazards? displayed", ended.text) or [0, -1])[1])
            only_theirs = (ended.code == FOUND and tool == "racecheck" and shown and theirs and not others
                           and count_tests(ended.text)[1] == 0)
            check.expect(f"{program.name}: {tool} finds nothing in trainer's kernels", ended.code == 0 or only_theirs,
                         others or summary or ended.code)
            check.figures.setdefault("summary", []).append(
                f"{program.name}: {'; '.join(summary)}" + (f", all in {', '.join(theirs)}" if only_theirs else ""))
    return stage


def machine(check):
    found = check.machine
    card = found["card"]
    check.figure("platform", platform.platform())
    ended = check.run([layout.program(), "--version"])
    check.expect("the program starts", ended.code == 0, ended.code)
    check.figure("program", f"{ended.text.strip()}, build {layout.build()}, torch {found['torch']}, driver {found['driver']}")
    if card:
        check.figure("bf16", found["bf16"])


STAGES = [
    Stage("machine", "the program starts; which build, torch, driver and card", machine, 0.1),
    Stage("doctor", "trainer doctor finds nothing wrong and names the card", doctor, 0.3),
    Stage("nvrtc", "NVRTC compiles every kernel with no CUDA toolkit in sight", nvrtc, 0.5),
    Stage("unit-tests", "the tests OnAGpu: every kernel against the CPU's operator", unit_tests, 1),
]
LAST = [
    Stage("memcheck", "the same tests under compute-sanitizer memcheck", sanitized("memcheck"), 3, needs_card=True, gigabytes=3),
    Stage("racecheck", "the same tests under compute-sanitizer racecheck", sanitized("racecheck"), 5, needs_card=True, gigabytes=3),
]
