"""Reads torch's profiler: the kernels that took longest, and how many there are in a step."""
import re

TOP = 20
KEPT = 60  # in results.json
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cuStreamSynchronize", "cuCtxSynchronize",
         "cudaMemcpy", "cuMemcpyDtoH_v2", "cuMemcpyHtoD_v2")
UPDATE = re.compile(r"adam", re.IGNORECASE)
BETWEEN = 30  # other kernels between the updates of two steps, at least


def profiler(device):
    """On a card: everything that runs on it, and the calls to it. Otherwise: LibTorch's operators on the CPU."""
    import torch
    from torch.profiler import ProfilerActivity
    activities = [ProfilerActivity.CUDA] if device == "cuda" else [ProfilerActivity.CPU]
    return torch.profiler.profile(activities=activities, acc_events=True)


def short(name):
    """A kernel's name without template arguments."""
    name = re.sub(r"^void ", "", name).replace("(anonymous namespace)::", "")
    return re.sub(r"\(.*", "", name)[:110]


def last_steps(kernels):
    """The kernels of the last whole steps, and the number of steps. An update ends a step."""
    ends, since = [], BETWEEN
    for place, (_, name, _) in enumerate(kernels):
        if not UPDATE.search(name):
            since += 1
            continue
        if since < BETWEEN and ends:
            ends[-1] = place
        else:
            ends.append(place)
        since = 0
    steps = min(3, len(ends) - 1)
    return (kernels[ends[-1 - steps] + 1:ends[-1] + 1], steps) if steps > 0 else (kernels, None)


def summary(profile, steps):
    """{"top": [{name, milliseconds, calls, share}], ...}, all for one step; "span": from its first kernel to its last.
    `steps` is used if the updates do not separate the steps."""
    from torch.autograd import DeviceType
    events = profile.profiler.kineto_results.events()
    on_card = [event for event in events if event.device_type() == DeviceType.CUDA]
    is_cpu = not on_card
    chosen = sorted(((event.start_ns(), event.name(), event.duration_ns()) for event in (events if is_cpu else on_card)
                     if not event.name().startswith(("ProfilerStep", "[memory]"))), key=lambda one: one[0])
    if not chosen:
        return {"top": [], "launches": 0}
    found, whole = last_steps(chosen)
    span, count = (found[0][0], found[-1][0]), whole or steps
    sums = {}
    for _, name, duration in found:
        entry = sums.setdefault(name, [0, 0])
        entry[0], entry[1] = entry[0] + duration, entry[1] + 1
    total = sum(duration for duration, _ in sums.values())
    top = sorted(sums.items(), key=lambda item: -item[1][0])[:KEPT]
    calls = [event.name() for event in events if event.name() in WAITS and span[0] <= event.start_ns() <= span[1]]
    copies = {name: entry[1] / count for name, entry in sums.items() if name.startswith("Memcpy")}
    return {"steps": count, "what": "operators" if is_cpu else "kernels",
            "launches": sum(entry[1] for name, entry in sums.items() if not name.startswith(("Memcpy", "Memset"))) / count,
            "milliseconds": total / count / 1e6, "span": (span[1] - span[0]) / count / 1e6, "copies": copies,
            "waits": {name: calls.count(name) / count for name in sorted(set(calls))},
            "top": [{"name": short(name), "milliseconds": duration / count / 1e6, "calls": number / count,
                     "share": duration / total if total else 0} for name, (duration, number) in top]}
