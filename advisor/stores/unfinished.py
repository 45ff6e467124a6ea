"""Names of downloads that are still going on, which are never read.

Sources: llama.cpp b11434 (.downloadInProgress), huggingface_hub (.incomplete), LM Studio and text-generation-webui
(.part, downloading_), GPT4All (incomplete-*.gguf), Ollama 0.33 (sha256-…-partial, -partial-N), RamaLama and Lemonade
(.partial), aria2 as KoboldCpp uses it (a control file beside the file), browsers (.crdownload).
"""

from __future__ import annotations

from collections.abc import Container

STARTS = ("incomplete-", "downloading_", ".~")
_ENDINGS = (
    ".downloadinprogress", ".incomplete", ".part", ".partial", ".aria2", ".crdownload", ".download", ".tmp", ".lock",
)  # fmt: skip
CONTROL_ENDING = ".aria2"  # beside a file that has its full size from the start


def is_unfinished(name: str, siblings: Container[str] = ()) -> bool:
    """Whether a file called `name`, beside `siblings`, is part of a download that goes on."""
    lower = name.lower()
    if lower.startswith(STARTS) or lower.endswith(_ENDINGS) or name + CONTROL_ENDING in siblings:
        return True
    before, partial, number = lower.rpartition("-partial")
    return bool(partial) and before.startswith("sha256-") and number.lstrip("-").isdecimal() | (not number)


def mentions_gguf(name: str) -> bool:
    """Whether an unfinished download's name says that it will be a GGUF."""
    return ".gguf" in name.lower()
