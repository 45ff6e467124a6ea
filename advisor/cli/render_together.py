"""Several models that share a machine, as text: one bar per place, then each model with its command."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.cli.render_plan import note_lines
from advisor.cli.terminal import Screen, clean
from advisor.host import HostSnapshot
from advisor.memory.engine_spec import EngineSpec
from advisor.recommend.recommendation import Fix
from advisor.together.notes import listed
from advisor.together.shares import less, load_of, total
from advisor.together.types import Member, Seat, Together
from advisor.units import format_bytes

_COLORS = ("blue", "magenta", "cyan", "yellow", "green", "red")
_VERDICT = {"full": "green", "partial": "yellow", "does_not_fit": "red"}
_MOST_FIXES = 4


def render_together(
    answer: Together, host: HostSnapshot, engine: EngineSpec, commands: Sequence[str | None], screen: Screen
) -> list[str]:
    """All lines of `advisor recommend --together`."""
    lines = _machine_line(answer, host, screen)
    summary = screen.wrap(_summary(answer), "")
    lines += ["", *(screen.paint(line, "bold", _VERDICT[answer.verdict]) for line in summary), ""]
    lines += _bars(answer, screen)
    for number, (member, seat, command) in enumerate(zip(answer.members, answer.seats, commands, strict=True)):
        lines += ["", *_member(number, member, seat, command, screen)]
    bullet = f"  {screen.symbol('·', '-')} "
    if answer.verdict == "does_not_fit":
        lines += ["", screen.paint("What fits together", "bold")]
        for who in answer.subsets:
            lines += screen.wrap(_listed(answer, who) + (" alone" if len(who) == 1 else ""), "    ", bullet)
        lines += [] if answer.subsets else [f"{bullet}none of them"]
        for lack in answer.lacks:
            name, beside = clean(answer.members[lack.member].name), _listed(answer, lack.beside)
            where = "system memory" if lack.short.device == "host" else lack.short.device
            lacking = f"{format_bytes(lack.short.over_bytes)} of {where}"
            lines += screen.wrap(f"{name} lacks {lacking} beside {beside}", "    ", bullet)
    helps = _helps(answer)
    if helps:
        lines += ["", screen.paint("What would help", "bold")]
        for text in helps:
            lines += screen.wrap(text, "    ", bullet)
    if answer.notes:
        lines += ["", screen.paint("Mind", "bold"), *note_lines(answer.notes, screen, "!", "yellow")]
    build = f"b{engine.build}" + ("" if engine.confidence == "measured" else ", extrapolated")
    return [*lines, "", screen.paint(f"Figures: formula for {engine.name} {build}.", "dim")]


def _machine_line(answer: Together, host: HostSnapshot, screen: Screen) -> list[str]:
    cards = [
        f"{clean(real.name)} ({format_bytes(limit.free_bytes)} of {format_bytes(limit.total_bytes)} free)"
        for real, limit in zip(host.devices, answer.budget.devices, strict=True)
    ]
    budget = answer.budget
    ram = f"{format_bytes(budget.ram_available_bytes)} of {format_bytes(budget.ram_total_bytes)} system memory free"
    return screen.wrap(f"{len(answer.members)} models on {' + '.join(cards) if cards else 'no GPU'}, {ram}", "   ", "")


def _summary(answer: Together) -> str:
    count = len(answer.members)
    every = "Both" if count == 2 else f"All {count}"
    if answer.verdict == "full":
        seats = [load_of(seat.answer.chosen.plan).devices for seat in answer.seats if seat is not None]
        there = sum(1 for devices in seats if devices)
        where = ", each wholly on the GPU" if there == len(seats) else " on the CPU"
        if 0 < there < len(seats):
            where = f", {there} of them on the GPU, as was asked for"
        return f"{every} fit together{where}."
    if answer.verdict == "partial":
        partly = [
            clean(member.name)
            for member, seat in zip(answer.members, answer.seats, strict=True)
            if seat is not None and seat.answer.verdict != "full"
        ]
        return f"{every} fit together, {listed(partly)} not wholly on the GPU."
    over = answer.over
    if over is None:
        return f"The {count} models do not fit together."
    where = "more system memory than there is" if over.device == "host" else f"more of {over.device} than there is"
    return f"The {count} models do not fit together: they need {format_bytes(over.over_bytes)} {where}."


def _bars(answer: Together, screen: Screen) -> list[str]:
    loads = [load_of(seat.answer.chosen.plan) if seat is not None else None for seat in answer.seats]
    left = less(answer.budget, total(load for load in loads if load is not None))
    width = max([len("host"), *(len(limit.id) for limit in answer.budget.devices)])
    lines: list[str] = []
    for limit, rest in zip(answer.budget.devices, left.devices, strict=True):
        parts = [load.devices.get(limit.id, 0) if load is not None else 0 for load in loads]
        verdict = f"{format_bytes(rest.usable_bytes)} to spare, {format_bytes(limit.margin_bytes)} kept free"
        lines += _bar(limit.id.ljust(width), answer, parts, limit.free_bytes, verdict, screen)
    ram = [load.host_bytes if load is not None else 0 for load in loads]
    margin = answer.budget.ram_margin_bytes
    verdict = f"{format_bytes(left.ram_usable_bytes)} to spare, {format_bytes(margin)} kept free"
    return lines + _bar("host".ljust(width), answer, ram, answer.budget.ram_available_bytes, verdict, screen)


def _bar(
    label: str, answer: Together, parts: Sequence[int], free_bytes: int, verdict: str, screen: Screen
) -> list[str]:
    sizes = f"{format_bytes(sum(parts))} of {format_bytes(free_bytes)}"
    cells = max(min(screen.width - len(label) - len(sizes) - 8, 40), 10)
    drawn = [(n_bytes, _COLORS[number % 6], _letter(number)) for number, n_bytes in enumerate(parts)]
    indent = "  " + " " * len(label) + "  "
    legend = ", ".join(
        f"{_letter(number)} {clean(member.name, 40)} {format_bytes(n_bytes)}"
        for number, (member, n_bytes) in enumerate(zip(answer.members, parts, strict=True))
        if n_bytes
    )
    lines = [f"  {screen.paint(label, 'bold')}  {screen.bar(drawn, max(free_bytes, 1), cells)}  {sizes}"]
    return [*lines, *(screen.wrap(legend, indent + "  ", indent) if legend else []), indent + verdict]


def _member(number: int, member: Member, seat: Seat | None, command: str | None, screen: Screen) -> list[str]:
    spec = member.spec
    dot = screen.symbol("·", "-")
    facts = [f"{clean(spec.architecture)} {clean(spec.quantization)}", format_bytes(spec.file_bytes)]
    facts += [f"trained for {spec.n_ctx_train:,} tokens"] if spec.n_ctx_train else []
    head = f"{_letter(number)}  {clean(member.name)}: {f' {dot} '.join(facts)}"
    lines = [screen.paint(line, "bold", _COLORS[number % 6]) for line in screen.wrap(head, "     ", "")]
    if seat is None:
        return [*lines, "   Left out."]
    cards = [plan.id for plan in seat.answer.chosen.plan.devices if plan.planned_bytes]
    where = f" On {' and '.join(cards)}." if cards and len(seat.host.devices) + len(seat.host.idle_devices) > 1 else ""
    lines += screen.wrap(seat.answer.summary + where, "   ", "   ")
    lines += note_lines(seat.answer.warnings, screen, "!", "yellow")
    return [*lines, f"   {command}"] if command is not None else lines


def _helps(answer: Together) -> list[str]:
    found = []
    for lack in answer.lacks:
        found += [_fix_text(answer.members[lack.member], fix) for fix in lack.fixes if fix.costs != "money"]
    if answer.over is not None and answer.over.device == "host":
        found.append(f"{format_bytes(answer.over.over_bytes)} more system memory")
    if answer.verdict == "partial":
        for member, seat in zip(answer.members, answer.seats, strict=True):
            fixes = seat.answer.fixes if seat is not None else ()
            found += [_fix_text(member, fix) for fix in fixes if fix.enough][:2]
    return list(dict.fromkeys(found))[:_MOST_FIXES]


def _fix_text(member: Member, fix: Fix) -> str:
    if fix.costs == "money":
        return fix.change
    return f"{clean(member.name)}: {fix.change} saves {format_bytes(fix.saves_bytes)} ({fix.costs})"


def _listed(answer: Together, who: Sequence[int]) -> str:
    return listed([clean(answer.members[index].name) for index in who])


def _letter(number: int) -> str:
    return chr(ord("A") + number)
