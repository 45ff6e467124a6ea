"""Speed beyond memory: what spills out of a card, and programs that stream layers through a small one."""

from advisor.memory.types import MemoryPlan
from advisor.speed.constants import Constants

_BYTES_OF_16_BITS = 2


def spilled_seconds(plan: MemoryPlan, over_bytes: tuple[int, ...], constants: Constants) -> float:
    """What one token costs more when `over_bytes` of each device lie in system memory and come over the link.

    Weights that a token does not use (experts) spill with the others, so only their share is read.
    """
    seconds = 0.0
    for index, over in enumerate(over_bytes):
        if over > 0:
            device = plan.devices[index]
            read = plan.read_device_bytes[index] / device.weights_bytes if device.weights_bytes else 1.0
            seconds += over * min(read, 1.0) / constants.devices[index].spill_bytes_per_s
    return seconds


def streaming_seconds(parameters: int, constants: Constants) -> float:
    """One token of a program that loads every layer of the 16-bit model to the GPU, each time (AirLLM and the like)."""
    rates = [constants.host.disk_bytes_per_s]
    if constants.devices:
        rates.append(max(device.link_bytes_per_s for device in constants.devices))
    return parameters * _BYTES_OF_16_BITS / min(rates)
