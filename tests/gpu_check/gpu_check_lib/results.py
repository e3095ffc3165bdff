"""OUT/results.json, with the results of each stage as soon as it ends, and OUT/log.txt."""
import json
import os
import pathlib
import sys

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
LARGEST_LOG = 8 << 20


class Results:
    def __init__(self, out, earlier=()):
        self.out = pathlib.Path(out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.machine, self.stages = {}, {}
        self.quick = False
        for path in [*map(pathlib.Path, earlier), self.out / "results.json"]:
            if path.exists():
                self.read(path)

    def read(self, path):
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            self.machine = stored["machine"]
            self.stages.update(stored["stages"])
        except (ValueError, KeyError, TypeError) as error:
            sys.exit(f"error: {path} is not a results file of gpu_check ({error}); name another --out, or remove it")

    def is_done(self, name, plan):
        """Skipped stages are tried again, because the reason may be gone. So are stages of another plan: other sizes,
        another card, or another build of the program."""
        stored = self.stages.get(name)
        return stored is not None and stored["status"] != SKIPPED and stored["plan"] == plan

    def store(self, name, result):
        self.stages[name] = result
        self.write()

    def write(self):
        path = self.out / "results.json"
        new = path.with_suffix(".new")
        content = {"machine": self.machine, "stages": self.stages}
        with open(new, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)

    def log(self, text):
        path = self.out / "log.txt"
        if path.exists() and path.stat().st_size > LARGEST_LOG:
            path.replace(path.with_suffix(".old.txt"))
        with open(path, "a", encoding="utf-8") as file:
            file.write(text.rstrip() + "\n")

    def count(self, names):
        found = [self.stages[name]["status"] for name in names if name in self.stages]
        return {status: found.count(status) for status in (PASSED, FAILED, SKIPPED)}
