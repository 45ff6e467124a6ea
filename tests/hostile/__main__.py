"""`python -m tests.hostile [GROUP ...]`: gives every lie to advisor, and prints what was asked and answered.

Each lie gets exactly its answer, one sentence that can be printed, under a second of CPU. All of a group together may
take 64 MiB more than the interpreter with advisor in it. Nothing is written, run, connected to or imported that the
group's folder holds or a lie names; CPython's audit events tell of every try.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import resource
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from advisor.errors import AdvisorError
from tests.hostile.groups import GROUPS
from tests.hostile.lies import MARK, READ, Case, Group

MEMORY_BYTES = 64 << 20
CPU_S = 1.0
README = Path(__file__).with_name("README.md")
SECURITY = Path(__file__).resolve().parents[2] / "SECURITY.md"
TABLE_MARK = "<!-- written by python -m tests.hostile --readme -->\n"
END_MARK = "<!-- end -->\n"
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.truncate",
            "shutil.rmtree", "shutil.move", "os.chown", "os.utime")  # fmt: skip
_RUNS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork")
_CONNECTS = ("socket.connect", "socket.getaddrinfo")


class Result(NamedTuple):
    """How a group went."""

    group: str
    n_lies: int
    n_cases: int
    n_refused: int
    slowest_cpu_s: float
    memory_bytes: int
    failures: list[str]
    answers: list[tuple[str, int, list[str]]]  # of each lie: its name, its cases, the kinds of answers


class Guard:
    """What the audit events of a case tell; only looked at while one runs."""

    def __init__(self, group: Group, folder: str) -> None:
        self.group, self.folder, self.on, self.seen = group, folder, False, list[str]()
        sys.addaudithook(self.hook)

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note what must not happen."""
        if not self.on:
            return
        if event == "open":
            path, _, flags = arguments
            name = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
            if isinstance(flags, int) and flags & _WRITING and name != os.devnull:
                self.seen.append(f"writes {name}")
            if MARK in name:
                self.seen.append(f"opens {name}")
        elif (
            event in _CHANGES
            or (event in _RUNS and "run" not in self.group.may)
            or (event in _CONNECTS and "connect" not in self.group.may)
        ):
            self.seen.append(f"{event} {arguments}")
        elif event in ("import", "compile", "exec") and any(self.folder in str(each)[:4096] for each in arguments):
            self.seen.append(f"{event} {arguments}"[:300])


def answered(case: Case) -> tuple[str, str]:
    """(answer, sentence or what went wrong) of one case."""
    try:
        result = case.call()
    except AdvisorError as error:
        return type(error).__name__, str(error)
    except BaseException as error:
        return f"!{type(error).__name__}", str(error)[:300]
    return (result if isinstance(result, str) else READ), ""


def run_group(group: Group, folder: Path) -> Result:
    """All cases of a group, one after the other."""
    threading.stack_size(1 << 19)
    guard = Guard(group, str(folder))
    failures: list[str] = []
    n_cases = n_refused = 0
    slowest = 0.0
    before = _peak()
    answers: list[tuple[str, int, list[str]]] = []
    for number, lie in enumerate(group.lies):
        place = folder / str(number)
        place.mkdir()
        kinds: set[str] = set()
        first = n_cases
        for case in lie.make(place):
            n_cases += 1
            began, guard.on = time.process_time(), True
            answer, sentence = answered(case)
            guard.on = False
            used = time.process_time() - began
            slowest = max(slowest, used)
            n_refused += answer.endswith("Error")
            title = f"{group.name}, {lie.name}, {case.label}"
            kinds.add(answer if answer.endswith("Error") or answer == READ else "said in the result")
            if answer != case.answer:
                failures.append(f"{title}: {answer} instead of {case.answer} {sentence[:200]!r}")
            if sentence and (not sentence.isprintable() or len(sentence) > 2000 or not sentence.endswith((".", "?"))):
                failures.append(f"{title}: no plain sentence: {sentence[:200]!r}")
            if used > CPU_S:
                failures.append(f"{title}: {used:.2f} s of CPU")
            failures += [f"{title}: {what}" for what in guard.seen]
            guard.seen.clear()
        answers.append((lie.name, n_cases - first, sorted(kinds)))
    return Result(group.name, len(group.lies), n_cases, n_refused, slowest, _peak() - before, failures, answers)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _child(group: Group) -> Result:
    """Run a group in this process, which can take no more than its memory from now on."""
    with tempfile.TemporaryDirectory(prefix="advisor-lies-") as folder:
        limit = _address_space() + MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
        return run_group(group, Path(folder))


def results(names: list[str]) -> list[Result]:
    """Each group in a process of its own."""
    found = []
    for group in GROUPS:
        if not names or group.name in names:
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(reading)
                with os.fdopen(writing, "w") as out:
                    out.write(repr(tuple(_child(group))))
                os._exit(0)
            os.close(writing)
            with os.fdopen(reading) as told:
                text = told.read()
            os.waitpid(child, 0)
            found.append(
                Result(*ast.literal_eval(text))
                if text
                else Result(group.name, 0, 0, 0, 0, 0, [f"{group.name}: it died"], [])
            )
    return found


def counts(found: list[Result]) -> str:
    """The lines of SECURITY.md's table."""
    lines = ["| group | kinds of lies | cases | refused |", "|---|---|---|---|"]
    lines += [f"| {row.group} | {row.n_lies} | {row.n_cases:,} | {row.n_refused:,} |" for row in found]
    total = [sum(row[index] for row in found) for index in (1, 2, 3)]
    return "\n".join([*lines, f"| all | {total[0]} | {total[1]:,} | {total[2]:,} |"]) + "\n"


def table(found: list[Result]) -> str:
    """The lines of README.md's table."""
    lines = ["| group | lie | elsewhere | cases | answers |", "|---|---|---|---|---|"]
    elsewhere = {(group.name, lie.name): lie.elsewhere for group in GROUPS for lie in group.lies}
    for row in found:
        for name, n_cases, kinds in row.answers:
            lines.append(f"| {row.group} | {name} | {elsewhere[row.group, name]} | {n_cases} | {', '.join(kinds)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Print a row for each group, and every failure; the status is 1 when there are any."""
    names = [group.name for group in GROUPS]
    parser = argparse.ArgumentParser(
        prog="python -m tests.hostile", description="Gives every lie to advisor, and prints what was answered.",
        epilog=f"Groups: {', '.join(names)}.",
    )  # fmt: skip
    parser.add_argument("groups", nargs="*", metavar="GROUP", help="only these (default: all)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="the numbers, for programs")
    form.add_argument(
        "--readme", action="store_true", help="write the tables in README.md and SECURITY.md anew, of all"
    )
    asked = parser.parse_args()
    if unknown := [name for name in asked.groups if name not in names]:
        parser.error(f"there is no group {unknown[0]!r}; choose from {', '.join(names)}")
    if asked.readme and asked.groups:
        parser.error("--readme writes the tables of all groups; name none")
    all_results = results(asked.groups)
    failures = [failure for row in all_results for failure in row.failures]
    if asked.json:
        print(json.dumps([row._asdict() for row in all_results]))
        return 1 if failures else 0
    if asked.readme:
        before, mark, _ = README.read_text().partition(TABLE_MARK)
        README.write_text(f"{before}{mark}\n{table(all_results)}")
        before, mark, rest = SECURITY.read_text().partition(TABLE_MARK)
        SECURITY.write_text(f"{before}{mark}\n{counts(all_results)}\n{END_MARK}{rest.partition(END_MARK)[2]}")
    print(f"{'group':<22} {'lies':>5} {'cases':>6} {'refused':>8} {'slowest':>9} {'memory':>8}")
    for row in all_results:
        print(f"{row.group:<22} {row.n_lies:>5} {row.n_cases:>6,} {row.n_refused:>8,} {row.slowest_cpu_s * 1000:>6.0f} ms"
              f" {row.memory_bytes >> 20:>4} MiB")  # fmt: skip
    lies, cases, refused = (sum(row[index] for row in all_results) for index in (1, 2, 3))
    print(f"{'all':<22} {lies:>5} {cases:>6,} {refused:>8,}")
    for failure in failures[:200]:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
