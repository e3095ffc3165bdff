"""Finds files in the repository with its build tree, or in the unpacked bundle of scripts/make/gpu_bundle."""
import hashlib
import importlib.metadata
import importlib.util
import os
import pathlib
import re
import struct
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parents[1]  # of the script gpu_check
BUNDLED = (HERE / "program").is_dir()
ROOT = HERE if BUNDLED else HERE.parents[1]
MAKE = ROOT / ("make" if BUNDLED else "scripts/make")
CARDS = ROOT / "configs" / "models"
TESTS = ROOT / "tests" if BUNDLED else ROOT / "build" / "tests"
CORE = ROOT / ("program/lib" if BUNDLED else "build") / "libtrainer_core.so"
IN_PROCESS = TESTS / "libtrain_in_process.so"
X86_64 = 62  # e_machine of an ELF file


def program():
    """The program; None if it was not built."""
    wanted = os.environ.get("TRAINER")
    found = pathlib.Path(wanted) if wanted else ROOT / ("program/bin/trainer" if BUNDLED else "build/trainer")
    return found.resolve() if found.is_file() else None


def build():
    """Which build of the program this is: the beginning of the SHA-256 of its files."""
    content = hashlib.sha256()
    for file in (program(), CORE):
        content.update(file.read_bytes() if file and file.is_file() else b"")
    return content.hexdigest()[:12]


def commit():
    """The commit of the program, as far as it is known."""
    if BUNDLED:
        file = ROOT / "commit"
        return file.read_text(encoding="utf-8").strip() if file.is_file() else "unknown"
    try:
        found = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short=10", "HEAD"], text=True, capture_output=True, check=False)
    except OSError:
        return "unknown"
    return found.stdout.strip() or "unknown"


def machine_of(file):
    """e_machine of an ELF file."""
    with open(file, "rb") as content:
        return struct.unpack("<H", content.read(20)[18:20])[0]


def torch_folder():
    """The folder of the active Python's torch, without importing it; None if there is none."""
    spec = importlib.util.find_spec("torch")
    return pathlib.Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None


def torch_build():
    """(version, CUDA version or None) of that torch."""
    text = (torch_folder() / "version.py").read_text(encoding="utf-8")
    found = {name: value for name, value in re.findall(r"^(\w+)(?:: [^=]*)? = '([^']*)'", text, re.MULTILINE)}
    return found.get("__version__", "unknown"), found.get("cuda")


def version_of(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def libraries():
    """Folders of shared libraries for LD_LIBRARY_PATH: the bundle's own, then LibTorch's."""
    found = sorted({path.parent for path in ROOT.rglob("*.so*")}) if BUNDLED else [ROOT / "build"]
    return [*map(str, found), str(torch_folder() / "lib")]


def environment(command, extra=None):
    """The environment of a process. The program and the tests find their libraries and the active Python's LibTorch.
    Python itself keeps the libraries that it was built with."""
    variables = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1",
                 "TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false"}
    if command[0] != sys.executable:
        path = [*libraries(), os.environ.get("LD_LIBRARY_PATH", "")]
        variables |= {"LD_LIBRARY_PATH": ":".join(filter(None, path)), "TORCH_DIR": str(torch_folder())}
    return {**variables, **(extra or {})}
