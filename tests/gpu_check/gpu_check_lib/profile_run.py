#!/usr/bin/env python3
"""profile_run DEVICE STEPS CORE LIBRARY KEY=VALUE...: runs trainer in this process, under torch's profiler, and prints one
line of JSON with its top kernels, and how much of the memory's rate those of its own reach."""
import ctypes
import json
import os
import pathlib
import sys

# As src/cli/open_core.cpp sets them before LibTorch is opened.
for variable in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
    os.environ.setdefault(variable, "expandable_segments:True")

import torch  # noqa: E402, F401  LibTorch, before the libraries that need it

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from gpu_check_lib import kernels  # noqa: E402


def main():
    device, steps, core, library, keys = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5:]
    ctypes.CDLL(core, ctypes.RTLD_GLOBAL)
    ours = ctypes.CDLL(library)
    ours.train_in_process.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)]
    ours.count_operators.argtypes = ours.train_in_process.argtypes
    ours.count_operators.restype = ctypes.c_char_p
    overrides = (ctypes.c_char_p * len(keys))(*[key.encode() for key in keys])
    with kernels.profiler(device) as profile:
        code = ours.train_in_process(len(keys), overrides)
    if code == 0:
        counted = json.loads(ours.count_operators(len(keys), overrides))
        found = kernels.summary(profile, steps, counted, kernels.copy_rate(device))
        print(json.dumps({"profile": found}), flush=True)
    sys.stdout.flush()
    os._exit(code)  # two owners of LibTorch's state are in one process, and an orderly shutdown gains nothing


if __name__ == "__main__":
    main()
