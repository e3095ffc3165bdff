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


def grouped(operators):
    """Operators that share a kernel together: [(names, kernels, bytes)]."""
    groups = []
    for one in operators:
        new = ({one["operator"]}, set(one["kernels"]), one["bytes"])
        for other in [other for other in groups if other[1] & new[1]]:
            groups.remove(other)
            new = (new[0] | other[0], new[1] | other[1], new[2] + other[2])
        groups.append(new)
    return groups


def rates(sums, count, operators, rate, is_cpu):
    """Of each kernel of ours: bytes that its operator reads and writes, over its time, beside `rate`, what the card copies
    (bytes a second, read and written). [{name, milliseconds, bytes, rate, share}] of a step, by time. On a CPU: of each
    operator. Kernels that one operator starts are one row."""
    times = {}
    for name, (duration, _) in sums.items():
        times[short(name)] = times.get(short(name), 0) + duration / count / 1e9
    rows = []
    for names, kernels, moved in grouped(operators):
        parts = names if is_cpu else kernels
        seconds = sum(times.get(part, 0) for part in parts)
        if seconds > 0 and moved > 0:
            rows.append({"name": " + ".join(sorted(parts)), "milliseconds": 1e3 * seconds, "bytes": moved,
                         "rate": moved / seconds, "share": moved / seconds / rate})
    return sorted(rows, key=lambda row: -row["milliseconds"])


def copy_rate(device):
    """The bytes a second that this device reads and writes in a large copy: the median of several."""
    import statistics
    import time

    import torch
    size = 1 << (30 if device == "cuda" else 26)
    source = torch.ones(size, dtype=torch.uint8, device=device)
    to, seconds = torch.empty_like(source), []
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    for _ in range(12):
        wait()
        begin = time.perf_counter()
        for _ in range(4):
            to.copy_(source)
        wait()
        seconds.append((time.perf_counter() - begin) / 4)
    return 2 * size / statistics.median(seconds[2:])


def summary(profile, steps, operators=(), rate=0.0):
    """{"top": [{name, milliseconds, calls, share}], ...}, all for one step; "span": from its first kernel to its last;
    "rates": see rates(), of these operators, beside copies at `rate`. `steps` is used if the updates do not separate the steps."""
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
            "rates": rates(sums, count, operators, rate, is_cpu) if rate else [], "copy_rate": rate,
            "waits": {name: calls.count(name) / count for name in sorted(set(calls))},
            "top": [{"name": short(name), "milliseconds": duration / count / 1e6, "calls": number / count,
                     "share": duration / total if total else 0} for name, (duration, number) in top]}
