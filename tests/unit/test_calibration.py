"""What was measured: kept, read back, refused where it is broken, tied to its machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from advisor.calibrated import calibrated, machine_of, with_calibration
from advisor.calibration import (
    CPU,
    KEPT,
    Calibration,
    CpuTimes,
    DiskRate,
    HeadTimes,
    Machine,
    Run,
    TypeTimes,
    from_json,
    median,
    same_machine,
    to_json,
    with_run,
)
from advisor.calibration_file import (
    FILE,
    MAX_FILE_BYTES,
    forget_calibration,
    load_calibration,
    refuse_newer,
    save_calibration,
)
from advisor.errors import OutputError
from advisor.host import Cpu, HostSnapshot, Ram, Storage

ROOT = Path(__file__).resolve().parents[2]
GIB = 1 << 30
MACHINE = Machine("Test 9000", 8, 16, 64 * GIB)
RUN = Run("cuda card 0", "Q4_K_M", 11434, "A model", 4 * GIB, (1.25,), (0.5,), 3)
FULL = Calibration(
    MACHINE,
    "2026-11-30",
    50_000_000_000,
    (DiskRate("/models", 3_000_000_000),),
    CpuTimes(
        "llama-server", 11434, 4e-5, 1e-8, 9e-9,
        (TypeTimes("q8_0", 4e10, 5e11), TypeTimes("q4_K", 3e10, None)), (HeadTimes(64, 1e-8, 5e-8, 2e-9),),
    ),
    (RUN, RUN._replace(device=CPU, build=None, prefill_factors=())),
)  # fmt: skip
EMPTY = Calibration(MACHINE, "2026-11-30")


def host(**changes: Any) -> HostSnapshot:
    snapshot = HostSnapshot(
        (), Ram(64 * GIB, 60 * GIB), Cpu("Test 9000", 8, 16), storage=(Storage("/models", kind="ssd"),)
    )
    return snapshot._replace(**changes)


@pytest.mark.parametrize("calibration", [FULL, EMPTY], ids=["full", "empty"])
def test_what_is_kept_is_read_back(tmp_path, calibration):
    assert save_calibration(str(tmp_path / "state"), calibration) is None
    assert load_calibration(str(tmp_path / "state")) == (calibration, None)
    assert [path.name for path in (tmp_path / "state").iterdir()] == [FILE]
    document = json.loads((tmp_path / "state" / FILE).read_text())
    assert document["schema"] == "advisor.calibration/1"
    assert from_json(document) == calibration


def test_nothing_there_is_nothing(tmp_path):
    assert load_calibration(str(tmp_path)) == (None, None)
    assert forget_calibration(str(tmp_path)) is False


def test_it_is_forgotten(tmp_path):
    save_calibration(str(tmp_path), FULL)
    assert forget_calibration(str(tmp_path)) is True
    assert load_calibration(str(tmp_path)) == (None, None)


def broken() -> list[tuple[str, bytes]]:
    whole = json.dumps(to_json(FULL))
    found = [
        ("empty", b""), ("half", whole[: len(whole) // 2].encode()), ("no JSON", b"hello"), ("binary", b"\xff\xfe\0"),
        ("a list", b"[]"), ("a number", b"1"), ("nested", b"[" * 100_000), ("large", b" " * (MAX_FILE_BYTES + 1)),
        ("another schema", whole.replace("calibration/1", "calibrations/2").encode()),
        ("no version", whole.replace("calibration/1", "calibration/\u00b2").encode()),
        ("a word behind", b"{} x"),
    ]  # fmt: skip
    for path, value in (
        ("machine", None), ("machine.cpu", 3), ("machine.cpu", "x" * 600), ("machine.physical_cores", "8"),
        ("measured_on", "\ud800"), ("measured_on", "yesterday"), ("measured_on", "2026-11-30\x1b[2J"),
        ("measured_on", "2026-1-300"), ("machine.cpu", "a\ud800"), ("runs", [RUN._asdict()] * 2),
        ("disks", [{"folder": "/m", "bytes_per_s": 10**9}] * 2),
        ("cpu.types", [{"name": "q8_0", "bytes_per_s": 1e9, "flops": None}] * 2),
        ("cpu.heads", [{"head_size": 64, "pair_seconds": 1, "row_seconds": 1, "prompt_seconds": None}] * 2),
        ("machine.ram_bytes", 1.5), ("machine.ram_bytes", True), ("measured_on", None), ("ram_bytes_per_s", -1),
        ("ram_bytes_per_s", 1 << 70), ("disks", {}), ("disks", [1]), ("disks", [{"folder": "/x"}]), ("cpu", []),
        ("cpu.block_seconds", float("nan")), ("cpu.block_seconds", -1), ("cpu.row_seconds", "1"), ("cpu.types", None),
        ("cpu.types", [{"name": "q8_0", "bytes_per_s": 0, "flops": None}]), ("cpu.heads", [[64, 1, 1, 1]]),
        ("cpu.heads", [{"head_size": 0, "pair_seconds": 1, "row_seconds": 1, "prompt_seconds": None}]),
        ("cpu.types", [{"name": "q8_0", "bytes_per_s": float("inf"), "flops": None}]), ("runs", [None]),
        ("runs", [{**RUN._asdict(), "decode_factors": [0]}]), ("runs", [{**RUN._asdict(), "decode_factors": ["1"]}]),
        ("runs", [{**RUN._asdict(), "weights_bytes": 0}]), ("runs", [RUN._asdict()] * 501),
    ):  # fmt: skip
        document: Any = json.loads(whole)
        place = document
        *above, last = path.split(".")
        for name in above:
            place = place[name]
        place[last] = value
        found.append((f"{path} = {str(value)[:40]}", json.dumps(document).encode()))
    return found


@pytest.mark.parametrize("data", [data for _, data in broken()], ids=[name for name, _ in broken()])
def test_a_broken_file_is_not_used_and_said(tmp_path, data):
    (tmp_path / FILE).write_bytes(data)
    calibration, problem = load_calibration(str(tmp_path))
    assert calibration is None
    assert problem is not None
    assert FILE in problem
    assert "'advisor calibrate'" in problem
    assert (tmp_path / FILE).read_bytes() == data


@pytest.mark.parametrize(
    "changes",
    [
        {"machine": MACHINE._replace(cpu="x" * 501)}, {"machine": MACHINE._replace(physical_cores=0)},
        {"runs": (RUN._replace(build=0),)}, {"disks": (DiskRate("/m", 50_000),)},
        {"disks": (DiskRate("/m", 10**9),) * 2},
        {"disks": tuple(DiskRate(f"/{number}" + "m" * 3000, 10**9) for number in range(400))},
    ],
)  # fmt: skip
def test_what_could_not_be_read_again_takes_the_place_of_nothing(tmp_path, changes):
    assert save_calibration(str(tmp_path), FULL) is None
    said = save_calibration(str(tmp_path), EMPTY._replace(**changes))
    assert said is not None
    assert "left as it was" in said
    assert load_calibration(str(tmp_path)) == (FULL, None)


def test_a_long_path_is_kept(tmp_path):
    calibration = EMPTY._replace(disks=(DiskRate("/" + "m" * 4000, 10**9),))
    assert save_calibration(str(tmp_path), calibration) is None
    assert load_calibration(str(tmp_path)) == (calibration, None)


def test_a_path_that_is_no_text_is_kept(tmp_path):
    calibration = EMPTY._replace(disks=(DiskRate("/m/\udcff", 10**9),))
    assert save_calibration(str(tmp_path), calibration) is None
    assert load_calibration(str(tmp_path)) == (calibration, None)


def test_a_file_of_a_newer_advisor_is_left_alone(tmp_path):
    data = json.dumps({"schema": "advisor.calibration/12", "more": [1]}).encode()
    (tmp_path / FILE).write_bytes(data)
    calibration, problem = load_calibration(str(tmp_path))
    assert calibration is None
    assert "newer advisor" in str(problem)
    assert "broken" not in str(problem)
    assert save_calibration(str(tmp_path), FULL) == problem
    with pytest.raises(OutputError, match="newer advisor"):
        refuse_newer(str(tmp_path))
    assert (tmp_path / FILE).read_bytes() == data
    assert forget_calibration(str(tmp_path)) is True
    refuse_newer(str(tmp_path))
    assert save_calibration(str(tmp_path), FULL) is None
    refuse_newer(str(tmp_path))


def test_nothing_is_measured_that_could_not_be_kept(tmp_path):
    (tmp_path / "advisor").mkdir()
    (tmp_path / "advisor" / FILE).write_text('{"schema": "advisor.calibration/2"}')
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "advisor", "calibrate", "--no-engine"]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "newer advisor" in done.stderr


def test_a_file_that_cannot_be_read(tmp_path):
    (tmp_path / FILE).mkdir()
    calibration, problem = load_calibration(str(tmp_path))
    assert calibration is None
    assert "not a regular file" in str(problem)


def test_a_folder_that_takes_no_file(tmp_path):
    (tmp_path / "state").write_text("a file")
    assert "cannot be written" in str(save_calibration(str(tmp_path / "state"), FULL))


def test_json_is_read_alike_with_and_without_its_package(tmp_path):
    """The quick way must see what json sees, and must not import it."""
    save_calibration(str(tmp_path), FULL)
    code = (
        "import sys; from advisor.calibration_file import load_calibration; found = load_calibration(sys.argv[1]);"
        "assert 'json' not in sys.modules; import json; assert load_calibration(sys.argv[1]) == found; print(found[0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    assert done.stdout.strip() == str(FULL), done.stderr


def test_a_broken_file_is_refused_without_jsons_package_too(tmp_path):
    files = [(f"{number}", data) for number, (_, data) in enumerate([*broken(), ("behind", dumped() + b" {}")])]
    for name, data in files:
        (tmp_path / name).mkdir()
        (tmp_path / name / FILE).write_bytes(data)
    code = (
        "import os, sys; from advisor.calibration_file import load_calibration\n"
        "for name in os.listdir(sys.argv[1]):\n"
        "    for module in [key for key in sys.modules if key.partition('.')[0] == 'json']: del sys.modules[module]\n"
        "    found, problem = load_calibration(os.path.join(sys.argv[1], name))\n"
        "    assert found is None and 'is broken' in problem, (name, problem)\n"
        "    print(name)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    assert sorted(done.stdout.split()) == sorted(name for name, _ in files), done.stderr


def dumped() -> bytes:
    return json.dumps(to_json(FULL)).encode()


# ---------------------------------------------------------------- the machine


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (MACHINE, True),
        (MACHINE._replace(ram_bytes=MACHINE.ram_bytes - (100 << 20)), True),  # a kernel that keeps more of it
        (MACHINE._replace(ram_bytes=32 * GIB), False),
        (MACHINE._replace(ram_bytes=96 * GIB), False),
        (MACHINE._replace(cpu="Test 9001"), False),
        (MACHINE._replace(physical_cores=4), False),
        (MACHINE._replace(logical_cores=8), False),
    ],
)
def test_the_same_machine(other, same):
    assert same_machine(MACHINE, other) is same


def test_a_measured_machine(tmp_path):
    save_calibration(str(tmp_path), FULL._replace(disks=(*FULL.disks, DiskRate("/more", 5 * 10**8))))
    seen = with_calibration(host(), str(tmp_path))
    assert machine_of(seen) == MACHINE
    assert seen.calibration is not None
    assert seen.ram.bandwidth_bytes_per_s == 50_000_000_000
    assert "2026-11-30" in str(seen.ram.bandwidth_source)
    assert [(disk.folder, disk.kind, disk.read_bytes_per_s) for disk in seen.storage] == [
        ("/models", "ssd", 3_000_000_000),
        ("/more", None, 500_000_000),
    ]
    assert seen.notes == ()


def test_another_machine_is_not_calibrated_and_hears_why(tmp_path):
    save_calibration(str(tmp_path), FULL)
    seen = with_calibration(host(cpu=Cpu("Other", 4, 8)), str(tmp_path))
    assert seen.calibration is None
    assert seen.ram.bandwidth_bytes_per_s is None
    assert len(seen.notes) == 1
    assert "other hardware" in seen.notes[0]
    assert "Test 9000" in seen.notes[0]


def test_memory_that_was_not_measured_keeps_what_is_known():
    known = host(ram=Ram(64 * GIB, 60 * GIB, bandwidth_bytes_per_s=1, bandwidth_source="a table"))
    assert calibrated(known, EMPTY).ram == known.ram


# ---------------------------------------------------------------- runs


def test_runs_of_one_model_come_together():
    more = RUN._replace(decode_factors=(2.0,), prefill_factors=(), n_seen=1)
    (run,) = with_run(EMPTY._replace(runs=(RUN,)), more).runs
    assert run == RUN._replace(decode_factors=(1.25, 2.0), n_seen=4)
    both = with_run(EMPTY._replace(runs=(RUN,)), more._replace(build=11500)).runs
    assert [run.build for run in both] == [11434, 11500]


def test_only_the_latest_of_a_run_count():
    calibration = EMPTY
    for number in range(KEPT + 5):
        calibration = with_run(calibration, RUN._replace(decode_factors=(1.0 + number,), n_seen=1))
    (run,) = calibration.runs
    assert run.decode_factors == tuple(1.0 + number for number in range(5, KEPT + 5))
    assert run.n_seen == KEPT + 5


@pytest.mark.parametrize(("values", "middle"), [((3.0,), 3.0), ((4.0, 1.0, 2.0), 2.0), ((1.0, 4.0, 2.0, 3.0), 2.5)])
def test_the_median(values, middle):
    assert median(values) == middle


def test_the_state_folder_of_another_user_is_safe(tmp_path, monkeypatch):
    """Kept for its owner alone where the folder is made."""
    save_calibration(str(tmp_path / "new"), EMPTY)
    assert os.stat(tmp_path / "new").st_mode & 0o077 == 0
