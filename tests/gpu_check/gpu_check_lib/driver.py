"""Asks the NVIDIA driver about the card, without torch and without a CUDA context. Run as a program, it prints the answers
as JSON, so that a driver that hangs blocks only this process."""
import ctypes
import json
import sys

COMPUTE_MAJOR, COMPUTE_MINOR = 75, 76  # CUdevice_attribute
OLDEST_FOR = {"13": (13000, "580"), "12": (12000, "525")}


class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def open_library(name):
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


class Nvml:
    """Driver version and memory of a card. An answer is None if NVML does not give it."""

    def __init__(self):
        self.library = open_library("libnvidia-ml.so.1")
        if self.library is not None and self.library.nvmlInit_v2() != 0:
            self.library = None

    def driver_version(self):
        text = ctypes.create_string_buffer(96)
        if self.library is None or self.library.nvmlSystemGetDriverVersion(text, len(text)) != 0:
            return None
        return text.value.decode()

    def handle(self, uuid):
        """The card with this UUID (16 bytes in hexadecimal)."""
        count = ctypes.c_uint()
        if self.library is None or self.library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            return None
        for index in range(count.value):
            card, text = ctypes.c_void_p(), ctypes.create_string_buffer(96)
            if (self.library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(card)) == 0
                    and self.library.nvmlDeviceGetUUID(card, text, len(text)) == 0
                    and text.value.decode().removeprefix("GPU-").replace("-", "") == uuid):
                return card
        return None

    def memory(self, uuid):
        """(free, used) bytes."""
        card, memory = self.handle(uuid), Memory()
        if card is None or self.library.nvmlDeviceGetMemoryInfo(card, ctypes.byref(memory)) != 0:
            return None, None
        return memory.free, memory.used


def card_of(cuda, nvml):
    """The first card that CUDA sees."""
    device, value, total = ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
    name, uuid = ctypes.create_string_buffer(128), ctypes.create_string_buffer(16)
    cuda.cuDeviceGet(ctypes.byref(device), 0)
    cuda.cuDeviceGetName(name, len(name), device)
    cuda.cuDeviceTotalMem_v2(ctypes.byref(total), device)
    cuda.cuDeviceGetUuid_v2(uuid, device)
    capability = []
    for attribute in (COMPUTE_MAJOR, COMPUTE_MINOR):
        cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        capability.append(value.value)
    free, used = nvml.memory(uuid.raw.hex())
    return {"name": name.value.decode(), "uuid": uuid.raw.hex(), "capability": capability, "total": total.value,
            "free": free, "used": used}


def look():
    """{"problem": line or "", "driver", "cuda", "cards", "card"}."""
    nvml = Nvml()
    found = {"problem": "", "driver": nvml.driver_version(), "cuda": 0, "cards": 0, "card": None}
    cuda = open_library("libcuda.so.1")
    if cuda is None:
        return {**found, "problem": "no NVIDIA driver on this machine (libcuda.so.1 is not found)"}
    version, count = ctypes.c_int(), ctypes.c_int()
    if cuda.cuDriverGetVersion(ctypes.byref(version)) == 0:
        found["cuda"] = version.value
    error = cuda.cuInit(0)
    if error == 0:
        error = cuda.cuDeviceGetCount(ctypes.byref(count))
    if error not in (0, 100):
        return {**found, "problem": f"the NVIDIA driver {found['driver'] or ''} does not start: CUDA error {error}"}
    if count.value == 0:
        return {**found, "problem": "the NVIDIA driver sees no card; look at nvidia-smi and CUDA_VISIBLE_DEVICES"}
    return {**found, "cards": count.value, "card": card_of(cuda, nvml)}


def too_old(found, torch_cuda):
    """A message if the driver is too old for torch's CUDA; otherwise ""."""
    oldest = OLDEST_FOR.get((torch_cuda or "").split(".")[0])
    if oldest is None or not found["cuda"] or found["cuda"] >= oldest[0]:
        return ""
    supports = f"{found['cuda'] // 1000}.{found['cuda'] % 1000 // 10}"
    return (f"the NVIDIA driver {found['driver'] or ''} supports CUDA {supports}, and this torch is built for CUDA "
            f"{torch_cuda}: it needs driver {oldest[1]} or newer").replace("  ", " ")


if __name__ == "__main__":
    json.dump(look(), sys.stdout)
