"""The parts of tests/gpu_check/gpu_check. Standard library only, but for the processes that it starts: write_model, peer and
profile_run, which import torch."""
