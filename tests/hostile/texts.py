"""Names that do something where they are not expected: on a terminal, in a shell, in files of every format."""

from __future__ import annotations

CONTROL = "".join(map(chr, (*range(1, 32), 127, *range(128, 160))))
ESCAPES = "\x1b[2J\x1b[31mred\x1b]0;owned\x07\x9b31m"
LINES = "x\nadvisor: all is well\r\rFits whole.\u2028y\u2029z\x85"
BIDI = "\u202egnp.\u2066exe\u2069\u200f\u061c"
BROKEN = b"\xff\xfe\xc0\xaf\xed\xa0\x80".decode("utf-8", "surrogateescape")
SHELL = '\'; touch EVIL; $(touch EVIL) `touch EVIL` "$HOME" \\ & | > EVIL * ~ ! #'
FORMATS = (
    "[section]\n; a = b # c: {d}, [e] ${env.HOME} %h %% %n <b>&amp;</b> ]]> <!-- <script>alert(1)</script> --- ..."
)
LONG = "long " * 2_000_000  # 10 MB

NASTY = {
    "control characters": CONTROL, "escape codes": ESCAPES, "line ends": LINES, "bidi marks": BIDI,
    "shell": SHELL, "formats": FORMATS,
}  # fmt: skip
EVERYTHING = " ".join(NASTY.values())
