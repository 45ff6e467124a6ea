"""What `advisor calibrate --json` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from advisor import calibration as measured
from advisor.cli.checking import figure_shape

if TYPE_CHECKING:
    from advisor.cli.calibrate import Outcome
    from advisor.cli.calibrating import Tried
    from advisor.cli.checking import Check


def document(outcome: Outcome) -> dict[str, Any]:
    """The whole answer."""
    values = measured.to_json(outcome.calibration)
    del values["schema"]
    return {
        "schema": "advisor.calibrate/1",
        **values,
        "disks": [
            {"folder": disk.folder, "file": disk.file, "bytes_per_s": disk.bytes_per_s, "reason": disk.reason or None}
            for disk in outcome.disks
        ],
        "trials": _trials_shape(outcome.tried) if outcome.tried is not None else None,
        "check": _check_shape(outcome.check) if outcome.check is not None else None,
        "kept_in": outcome.path,
        "seconds": round(outcome.seconds, 2),
        "notes": list(outcome.notes),
    }


def _trials_shape(tried: Tried) -> dict[str, Any]:
    return {
        "binary": tried.binary.path,
        "binary_kind": tried.binary.kind,
        "binary_origin": tried.binary.origin,
        "seconds": round(tried.seconds, 2),
        "timed": [
            {
                "what": entry.trial.what,
                "type": entry.trial.kind,
                "head_size": entry.trial.head_size,
                "decode_seconds": entry.decode_s,
                "prefill_seconds": entry.prefill_s,
                "deep_decode_seconds": entry.deep_s,
                "deep_prefill_seconds": entry.deep_prefill_s,
            }
            for entry in tried.timed
        ],
        "left_out": [f"{trial.what} {trial.head_size if trial.deep else trial.kind}" for trial in tried.left_out],
    }


def _check_shape(check: Check) -> dict[str, Any]:
    return {
        "model": {"path": check.spec.path, "name": check.spec.name, "quantization": check.spec.quantization},
        "binary": check.binary.path if check.binary is not None else None,
        "build": check.build,
        "device": check.device,
        "figures": [figure_shape(figure) for figure in check.figures],
    }
