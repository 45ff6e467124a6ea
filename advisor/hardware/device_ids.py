"""What llama.cpp calls its devices: a backend's name and a number counted per backend."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.host import Device

BACKENDS = ("cuda", "rocm", "vulkan", "metal", "sycl")
_PREFIXES = {"cuda": "CUDA", "rocm": "ROCm", "vulkan": "Vulkan", "metal": "MTL", "sycl": "SYCL"}


def device_id(backend: str, number: int) -> str:
    """Return llama.cpp's name of a device: CUDA0, ROCm0, Vulkan0, MTL0, SYCL0."""
    return f"{_PREFIXES.get(backend, backend)}{number}"


def number_devices(devices: Sequence[Device]) -> tuple[Device, ...]:
    """Give each device its number within its backend, in the order given."""
    counts: dict[str, int] = {}
    numbered = []
    for device in devices:
        number = counts.get(device.backend, 0)
        counts[device.backend] = number + 1
        numbered.append(device._replace(id=device_id(device.backend, number)))
    return tuple(numbered)
