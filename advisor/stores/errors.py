"""Errors of finding and opening a MODEL, before anything of it was read."""

from __future__ import annotations

from advisor.errors import ModelError


class ModelNotFoundError(ModelError):
    """Neither a file, nor a folder, nor a model of a store has this name."""


class UnreadableModelError(ModelError):
    """The operating system refuses to open or read the file."""


class NotAFileError(ModelError):
    """A pipe, a socket or a device: reading it could block or never end."""


class NoModelError(ModelError):
    """A folder or a repository without a GGUF model."""


class SeveralModelsError(ModelError):
    """A folder or a repository with more than one model, and nothing says which."""


class IncompleteModelError(ModelError):
    """A store's entry whose file is not there, or not wholly."""
