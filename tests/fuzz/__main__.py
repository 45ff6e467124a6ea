"""`python -m tests.fuzz`: runs the targets one after the other for a given time and prints what came of it.

--seconds N       for all targets together (600)
--target NAME     only this one; may be given several times
--log FILE        appends one line of JSON for each run
--sum FILE        only adds up such a log
--keep            adds the inputs that reached something new to the corpus in the repository
--work FOLDER     for inputs and findings (.fuzz)
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from tests.fuzz.corpus import inputs, keep

ROOT = Path(__file__).resolve().parents[2]
MAX_FINDINGS = 5  # of one target in one run
START_S = 6  # every module of advisor is instrumented
RSS_LIMIT_MB = 700
MAX_KEPT_INPUT_BYTES = 2048  # longer ones stay out of the repository
MAX_KEPT = 250
OPTIONS = (f"-rss_limit_mb={RSS_LIMIT_MB}", "-timeout=1200", "-report_slow_units=1200", "-print_final_stats=1")


class Run(NamedTuple):
    """What came of one target's share of the time."""

    target: str
    seconds: float
    executions: int
    coverage: int
    findings: list[str]


def run_target(target: str, seconds: float, work: Path) -> Run:
    """Fuzz one target; a finding ends libFuzzer, so it is started again until the time is over."""
    folder, found = work / "inputs" / target, work / "findings"
    folder.mkdir(parents=True, exist_ok=True)
    found.mkdir(exist_ok=True)
    for name, data in inputs(target).items():
        (folder / name).write_bytes(data)
    began, fuzzed, executions, coverage = time.monotonic(), 0.0, 0, 0
    findings: list[str] = []
    while (left := seconds - (time.monotonic() - began)) > 1 and len(findings) < MAX_FINDINGS:
        started = time.monotonic()
        command = [sys.executable, "-m", "tests.fuzz.child", target, *OPTIONS, f"-max_total_time={int(left)}",
                   f"-artifact_prefix={found}/{target}-", str(folder)]  # fmt: skip
        done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        said = done.stderr.decode("utf-8", "replace") + done.stdout.decode("utf-8", "replace")
        counts = re.findall(r"^(?:#|Done |stat::number_of_executed_units: )(\d+)", said, re.M)
        executions += max(map(int, counts), default=0)
        own = re.search(r"^Done \d+ runs in (\d+) second", said, re.M)  # without the time that starting takes
        fuzzed += float(own[1]) if own else time.monotonic() - started
        coverage = max(coverage, *map(int, re.findall(r"cov: (\d+)", said)), 0)
        if done.returncode:
            reason = [
                line for line in said.split("\n") if re.match(r"[\w.]*(Error|Exception)\b|.*ERROR: libFuzzer", line)
            ]
            findings.append(" | ".join(reason[:2])[:300] or said[-300:])
            (found / f"{target}-{int(time.time())}.txt").write_text(said)
    return Run(target, round(fuzzed, 1), executions, coverage, findings)


def keep_new(target: str, work: Path) -> None:
    """Minimize what there is and put it into the repository's archive."""
    merged = work / "merged" / target
    merged.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.fuzz.child", target, "-merge=1", str(merged), str(work / "inputs" / target)]
    subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    small = sorted((path.read_bytes() for path in merged.iterdir()), key=len)
    known = inputs(target)
    new = [data for data in small if len(data) <= MAX_KEPT_INPUT_BYTES and data not in known.values()]
    keep(target, [*known.values(), *new[: max(MAX_KEPT - len(known), 0)]])


def print_sum(runs: list[Run]) -> None:
    """A row for each target, and all of them together."""
    print(f"{'target':<28} {'seconds':>8} {'executions':>12} {'coverage':>8} {'findings':>8}")
    for target in sorted({run.target for run in runs}):
        mine = [run for run in runs if run.target == target]
        print(f"{target:<28} {sum(run.seconds for run in mine):>8.0f} {sum(run.executions for run in mine):>12,}"
              f" {max(run.coverage for run in mine):>8} {sum(len(run.findings) for run in mine):>8}")  # fmt: skip
    print(f"{'all':<28} {sum(run.seconds for run in runs):>8.0f} {sum(run.executions for run in runs):>12,}"
          f" {'':>8} {sum(len(run.findings) for run in runs):>8}")  # fmt: skip


def main() -> int:
    """The command; its status is 1 when there are findings."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="coverage-guided fuzzing of every reader")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--target", action="append")
    parser.add_argument("--log", type=Path)
    parser.add_argument("--sum", type=Path)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--work", type=Path, default=ROOT / ".fuzz")
    given = parser.parse_args()
    if given.sum:
        print_sum([Run(**json.loads(line)) for line in given.sum.read_text().splitlines()])
        return 0
    from tests.fuzz.targets import TARGETS

    targets = given.target or list(TARGETS)
    unknown = [name for name in targets if name not in TARGETS]
    if unknown:
        parser.error(f"{unknown[0]} is no target; choose among {', '.join(TARGETS)}")
    share = given.seconds / len(targets)
    print(f"{len(targets)} targets, {share:.0f} s each, and some {START_S} s of CPU to start each", flush=True)
    runs = []
    for target in targets:
        runs.append(run_target(target, share, given.work.absolute()))
        for finding in runs[-1].findings:
            print(f"{target}: {finding}", flush=True)
        if given.log:
            with given.log.open("a") as log:
                log.write(json.dumps(runs[-1]._asdict()) + "\n")
        if given.keep:
            keep_new(target, given.work.absolute())
    print_sum(runs)
    return 1 if any(run.findings for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
