"""What a text may hold to be carried by every config format, and messages that are safe to print."""

from __future__ import annotations

from advisor.errors import OutputError
from advisor.gguf_header.errors import excerpt, printable

_MAX_FILE_NAME_BYTES = 255  # of every common file system
RENAME = "rename the file or link it under a plain name"


def check_text(text: str, what: str, model_id: str, cure: str = RENAME) -> None:
    """Raise OutputError for control characters and for what is not UTF-8: no config file holds them rightly."""
    if any(char < " " or "\x7f" <= char <= "\x9f" or char in "\u2028\u2029" for char in text):
        raise OutputError(f"{excerpt(model_id)}: the {what} '{excerpt(text)}' holds control characters; {cure}.")
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise OutputError(f"{excerpt(model_id)}: the {what} '{excerpt(text)}' is not UTF-8; {cure}.")


def check_printable(text: str, what: str, model_id: str, cure: str = RENAME) -> None:
    """Raise OutputError for what a format without escapes cannot hold: also invisible and direction marks."""
    check_text(text, what, model_id, cure)
    if not text.isprintable() or text != text.strip():
        raise OutputError(
            f"{excerpt(model_id)}: the {what} '{excerpt(text)}' holds invisible characters or begins or ends "
            f"with a blank; {cure}."
        )


def plain_file_name(model_id: str, ending: str) -> str:
    """`model_id` as the name of one file. Raises OutputError."""
    name = model_id + ending
    check_printable(model_id, "name", model_id)
    if not model_id or model_id.startswith(".") or "/" in model_id or "\\" in model_id:
        raise OutputError(f"'{excerpt(model_id)}' cannot be the name of a file; rename the model.")
    if len(name.encode()) > _MAX_FILE_NAME_BYTES:
        raise OutputError(f"'{excerpt(model_id)}' is too long for the name of a file; rename the model.")
    return name


def without_controls(text: str, limit: int = 200) -> str:
    """A description from a model file as one plain line of at most `limit` characters."""
    return printable(" ".join(text[: limit * 4].split()))[:limit]
