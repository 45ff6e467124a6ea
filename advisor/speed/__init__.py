"""Tokens per second of a plan on a machine: `SpeedModel` predicts, `Constants` holds what it rests on."""

from advisor.speed.constants import Constants, DeviceConstants, HostConstants, class_of, constants_of
from advisor.speed.model import SpeedModel
from advisor.speed.types import Range, Speed, Turn

__all__ = [
    "Constants",
    "DeviceConstants",
    "HostConstants",
    "Range",
    "Speed",
    "SpeedModel",
    "Turn",
    "class_of",
    "constants_of",
]
