"""Prints one line for each check, with the measured value."""


class Report:
    def __init__(self):
        self.passed = 0
        self.failed = 0
        self.case = ""

    def check(self, what, passed, detail=""):
        self.passed += bool(passed)
        self.failed += not passed
        print(f"{'PASS' if passed else 'FAIL'} {self.case}: {what}{': ' + detail if detail else ''}", flush=True)

    def at_most(self, what, measured, limit, note=""):
        """NaN fails."""
        self.check(what, measured <= limit, f"{measured:.1e} (at most {limit:.1e}{', ' + note if note else ''})")

    def equal(self, what, ours, theirs):
        if ours == theirs:
            self.check(what, True, summary(ours))
        else:
            self.check(what, False, f"ours {shortened(ours)}, HF {shortened(theirs)}")


def summary(value):
    return f"{len(value)} equal" if isinstance(value, list) else shortened(value)


def shortened(value, limit=300):
    text = repr(value)
    return text if len(text) <= limit else text[:limit] + "…"
