"""`advisor inspect MODEL`: what a file is, and its header as a snapshot for a bug report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from advisor.errors import AdvisorError, ModelError, OutputError, UsageError

if TYPE_CHECKING:
    from advisor.app import App
    from advisor.gguf_header.types import GgufHeader
    from advisor.model.spec import ModelSpec

_SNAPSHOT_ENDINGS = (".json", ".json.gz")


@click.command("inspect", context_settings={"max_content_width": 100})
@click.argument("model", metavar="MODEL")
@click.option("--export", metavar="FILE.json[.gz]", help="write the header, without token texts and weights, to FILE")
@click.option("--rules", "rules_folder", metavar="DIR", help="a folder of rules that wins over the shipped ones")
@click.option("--json", "as_json", is_flag=True, help="machine-readable output")
def command(model: str, export: str | None, rules_folder: str | None, as_json: bool) -> int:
    """What MODEL is: architecture, tensors by type, blocks, heads, cache per token, vocabulary, oddities.

    MODEL is whatever 'advisor recommend' takes, and also a projector, an adapter, an importance matrix or a vocabulary.
    A file that --export wrote is accepted wherever a MODEL is; it holds no weights, so it can go into a bug report.
    Exit status: 0, 2 wrong usage, 1 any other error.
    """
    from advisor.app import App
    from advisor.cli.inspect_facts import inspect_document

    if export is not None and not export.endswith(_SNAPSHOT_ENDINGS):
        raise UsageError(f"--export '{export}' must end in .json or .json.gz, as header snapshots do.")
    app = App(rules_folder)
    header = app.header(model)
    spec, problem = describe_if_possible(app, header)
    document = inspect_document(header, spec, problem, app.engine(None))
    written = export_header(header, export) if export is not None else None
    if as_json:
        import json

        print(json.dumps(document, indent=2))
    else:
        from advisor.cli.render_inspect import render_inspect
        from advisor.cli.terminal import Screen

        print("\n".join(render_inspect(document, Screen())))
    if written is not None:
        click.echo(written, err=True)
    return 0


def describe_if_possible(app: App, header: GgufHeader) -> tuple[ModelSpec | None, str]:
    """(the model, "") or (None, why it cannot be planned for); the reason is "" for what is no language model."""
    from advisor.model.kinds import kind_of

    if kind_of(header) != "model":
        return None, ""
    try:
        return app.model(header), ""
    except ModelError as error:
        return None, f"no plan can be made for it: {error}"


def export_header(header: GgufHeader, path: str) -> str:
    """Write `header` as a snapshot to `path`, whole or not at all; returns a sentence that says so.

    Raises OutputError when `path` is something else than an earlier snapshot, or cannot be written.
    """
    import os

    from advisor.gguf_header import read_snapshot, write_snapshot

    target = os.path.realpath(os.path.expanduser(path))
    if os.path.lexists(target) and not _is_snapshot(target):
        raise OutputError(f"{path} exists and is no header snapshot, so it was left alone; choose another --export.")
    name = header.metadata.get("general.name")
    data = write_snapshot(header, name if isinstance(name, str) else "")
    try:
        read_snapshot(data, path)  # what we could not read ourselves must not be sent to anyone
    except ModelError as error:
        raise OutputError(f"the header of {header.path} cannot be exported ({error})") from None
    if target.endswith(".gz"):
        import gzip

        data = gzip.compress(data, 9, mtime=0)
    _replace(target, data, path)
    return f"wrote {path} ({len(data):,} bytes); it is accepted wherever a MODEL is."


def _is_snapshot(target: str) -> bool:
    from advisor.stores.resolve import load_header

    try:
        return target.endswith(_SNAPSHOT_ENDINGS) and load_header(target).source == "snapshot"
    except AdvisorError:
        return False


def _replace(target: str, data: bytes, shown: str) -> None:
    """Write beside the target and rename over it: a crash leaves the old file or the new one."""
    import os
    import tempfile

    temporary = None
    try:
        mode = os.stat(target).st_mode & 0o777 if os.path.exists(target) else 0o644
        descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(target), prefix=".advisor-")
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)
        raise OutputError(f"{shown} cannot be written ({error.strerror}); choose another --export.") from None
