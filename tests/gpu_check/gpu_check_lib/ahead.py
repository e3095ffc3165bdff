"""Makes models while stages run that need none of them yet."""
import threading

from . import models, processes

LIMIT = 480  # seconds for one model


class Ahead:
    """Makes these models one after another, in a thread of its own. A stage that needs one that is being made waits for it;
    what fails here is tried again by the stage, which reports it."""

    def __init__(self, scratch, shapes):
        self.scratch, self.shapes = scratch, shapes
        self.over = threading.Event()
        self.running = None
        self.thread = threading.Thread(target=self.work, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def work(self):
        for shape in self.shapes:
            if self.over.is_set():
                return
            try:
                models.make(self.scratch, shape, self.run)
            except (OSError, RuntimeError):
                pass

    def run(self, _what, command):
        self.running = processes.Running(command)
        ended = self.running.wait(LIMIT)
        if ended.code != 0 or self.over.is_set():
            raise RuntimeError(ended.tail)

    def __exit__(self, *_):
        self.over.set()
        running = self.running
        if running is not None and not running.is_over():
            running.kill()
        self.thread.join()
