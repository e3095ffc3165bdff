"""Starts the ranks of a run as torchrun does: one process each, with variables that say which it is."""
import os
import socket
import subprocess

from support import ROOT, TRAINER


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class InRanks:
    """The processes of one run."""

    def __init__(self, count, *arguments, of_rank=None, environment=None, start=None):
        """of_rank, environment: more arguments and variables, by rank; start: how many of them are started."""
        port = free_port()
        self.processes = []
        for rank in range(count if start is None else start):
            variables = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(count), LOCAL_RANK=str(rank),
                             LOCAL_WORLD_SIZE=str(count), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                             OMP_NUM_THREADS="1", OMP_WAIT_POLICY="PASSIVE", **(environment or {}).get(rank, {}))
            command = [TRAINER, *map(str, arguments), *map(str, (of_rank or {}).get(rank, ()))]
            self.processes.append(subprocess.Popen(command, cwd=ROOT, env=variables, text=True, stdin=subprocess.DEVNULL,
                                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE))

    def wait(self, timeout=200):
        """Returns the exit code and the text of each."""
        try:
            texts = [process.communicate(timeout=timeout)[1] for process in self.processes]
        finally:
            for process in self.processes:
                process.kill()
        return [process.returncode for process in self.processes], texts
