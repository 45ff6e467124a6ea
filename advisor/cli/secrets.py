"""Taking keys and passwords out of texts that are shown to others: reports and logs."""

from __future__ import annotations

import re

_REMOVED = "[removed]"
# Keys by their published beginnings (Hugging Face, OpenAI and alike, GitHub, GitLab, Slack, AWS), JSON web tokens
_KEYS = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|xox[abprs]-[\w-]{10,}|AKIA[A-Z0-9]{16}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"
)
_NAMED = re.compile(
    r"(?i)((?:api[-_ ]?key|access[-_ ]?token|token|passw(?:or)?d|secret|authorization|bearer)\"?(?:\s*[=:]\s*|\s+))"
    r"(?:bearer\s+)?(\"[^\"]*\"|'[^']*'|[^\s,;\"']+)"
)
# --api-key VALUE: whatever stands there but another option or a count
_OPTION = re.compile(r"(?i)(--?[\w-]*(?:api-key|token|password|secret)\s+)(?!-|\d+(?:\s|$))(\"[^\"]*\"|'[^']*'|\S+)")
_IN_ADDRESS = re.compile(r"(\w://)[^\s/@]+@")
_WORDS = frozenset(("is", "are", "in", "of", "and", "or", "for", "to", "id", "ids", "type", "list", "count", "embd"))


def without_secrets(text: str) -> str:
    """`text` without keys, without what stands behind words such as token or password, and without users in addresses.

    What cannot be told from a word is left: this is for texts that should hold no secrets in the first place.
    """
    if not any(mark in text.lower() for mark in ("hf_", "sk-", "gh", "gl", "xox", "akia", "eyj", "@", *_MARKS)):
        return text
    text = _IN_ADDRESS.sub(rf"\1{_REMOVED}@", _KEYS.sub(_REMOVED, text))
    text = _OPTION.sub(rf"\1{_REMOVED}", text)
    return _NAMED.sub(_named, text)


_MARKS = ("key", "token", "passw", "secret", "authorization", "bearer")


def _named(match: re.Match[str]) -> str:
    value = match[2].strip("\"'")
    said = "=" in match[1] or ":" in match[1]
    if value.lower() in _WORDS or (not said and (len(value) < 8 or not any(char.isdigit() for char in value))):
        return match[0]
    if value.replace(".", "").replace(",", "").isdecimal():  # tokens: 4096
        return match[0]
    return match[1] + _REMOVED
