"""Checks whether this machine can run the stages, with one line for each problem, and describes the machine."""
import fcntl
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile

from . import driver, layout

SMALLEST_STAGE_GB = 3
TORCH = "2.11"


class Unusable(Exception):
    """One line for the user; the program ends with this code."""

    def __init__(self, line, code=1):
        super().__init__(line)
        self.code = code


NO_DEVICE = 6
WITHOUT_A_CARD = "gpu_check --device cpu --quick runs what needs no card"


def check_bundle():
    found = layout.program()
    if found is None:
        raise Unusable(f"there is no program trainer in {layout.ROOT}: " +
                       ("unpack the bundle again" if layout.BUNDLED else "run scripts/build, or set TRAINER"))
    here = platform.machine()
    if layout.machine_of(found) == layout.X86_64 and here not in ("x86_64", "AMD64"):
        raise Unusable(f"this bundle is for x86_64 processors, and this machine is {here}")


def check_packages(device):
    """Everything needs torch. Only the comparisons need transformers and peft, and report when they are missing."""
    python = sys.executable
    if layout.torch_folder() is None:
        raise Unusable(f"{python} has no package torch: use the Python that has it, or: {python} -m pip install 'torch=={TORCH}.*' "
                       "transformers peft")
    version, cuda = layout.torch_build()
    if not version.startswith(TORCH + "."):
        raise Unusable(f"{python} has torch {version}, and this trainer is built for {TORCH}: {python} -m pip install "
                       f"'torch=={TORCH}.*'")
    if device == "cuda" and cuda is None:
        raise Unusable(f"{python} has torch {version} without CUDA: install one with it (pip install 'torch=={TORCH}.*'); "
                       f"{WITHOUT_A_CARD}", NO_DEVICE)


def ask_driver():
    command = [sys.executable, pathlib.Path(driver.__file__)]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        raise Unusable("the NVIDIA driver does not answer within 60 s; look at nvidia-smi and dmesg", NO_DEVICE) from None
    if result.returncode != 0:
        raise Unusable(f"the NVIDIA driver ended the process that asked it: {result.stderr.strip()[-300:]}", NO_DEVICE)
    return json.loads(result.stdout)


def check_card():
    """The driver's answers about the card, if it is usable."""
    found = ask_driver()
    old = driver.too_old(found, layout.torch_build()[1])
    if old or found["problem"]:
        raise Unusable(f"{old or found['problem']}; {WITHOUT_A_CARD}", NO_DEVICE)
    card = found["card"]
    if card["free"] is not None and card["free"] < SMALLEST_STAGE_GB * 1e9:
        raise Unusable(f"the card {card['name']} is full: {card['free'] / 1e9:.1f} GB free of {card['total'] / 1e9:.1f}, and the "
                       f"smallest stage needs {SMALLEST_STAGE_GB}; end what uses it (nvidia-smi shows it)", NO_DEVICE)
    return found


def processor():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def look(device):
    """Everything that the report says about the machine. Raises Unusable."""
    check_bundle()
    check_packages(device)
    found = check_card() if device == "cuda" else {"card": None, "driver": None, "cuda": 0, "cards": 0}
    version, cuda = layout.torch_build()
    return {**found, "device": device, "torch": version, "torch_cuda": cuda, "transformers": layout.version_of("transformers"),
            "peft": layout.version_of("peft"), "liger_kernel": layout.version_of("liger_kernel"), "python": platform.python_version(), "processor": processor(),
            "cores": len(os.sched_getaffinity(0)), "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "bf16": device == "cpu" or found["card"]["capability"][0] >= 8}


def scratch_folder(wanted, out, needed, lasting):
    """The folder for models: the first of these places with so many bytes of free space, otherwise the one with the most.
    lasting: the next start finds the models there."""
    if wanted:
        try:
            wanted.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Unusable(f"no folder to write models to: {error}", 2) from None
    places = [wanted] if wanted else [pathlib.Path("/dev/shm"), pathlib.Path(os.environ.get("TMPDIR", "/tmp")), out]
    places = [place for place in places if place.is_dir() and os.access(place, os.W_OK)]
    if not places:
        raise Unusable(f"no folder to write models to: {wanted}")
    room = {place: shutil.disk_usage(place).free for place in places}
    best = next((place for place in places if room[place] >= needed), max(places, key=room.get))
    name = f"trainer-gpu-check-{os.getuid()}"
    if not lasting:
        return pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-", dir=best))
    (best / name).mkdir(exist_ok=True)
    return best / name


def lock(folder):
    """Locks the folder for as long as the returned file is open."""
    file = open(folder / "lock", "w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise Unusable(f"another gpu_check uses {folder}: wait for it, or name another folder with --scratch", 2) from None
    return file
