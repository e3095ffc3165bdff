"""A fresh virtual environment with the wheel: what scripts/check/package does, once. Nothing is downloaded."""
import importlib.machinery
import importlib.util
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def load(path):
    loader = importlib.machinery.SourceFileLoader("package_check", str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def make(folder):
    """Makes the environment, with the torch of the build and the wheel in it."""
    package = load(ROOT / "scripts" / "check" / "package")
    wheel = pathlib.Path(os.environ["WHEEL"]) if "WHEEL" in os.environ else None
    if wheel is None:
        packages = folder.parent / "packages"
        subprocess.run([ROOT / "scripts" / "package", "--wheel", "--output", packages], check=True, stdout=subprocess.DEVNULL)
        wheel, = packages.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    site, = folder.glob("lib/python3*/site-packages")
    package.link_torch(site)
    subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "--no-index", "--no-deps", "--quiet", wheel], check=True)
    return folder
