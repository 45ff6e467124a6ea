"""What a file is, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from advisor.cli.inspect_facts import count_text
from advisor.cli.terminal import Screen, clean, columns
from advisor.units import format_bytes

_KINDS = {
    "full": "full attention",
    "window": "window of {n_window:,} tokens",
    "latent": "latent attention (MLA)",
    "recurrent": "recurrent",
    "feed_forward": "feed-forward only",
}
_MAX_RANGES = 12


def render_inspect(document: Mapping[str, Any], screen: Screen) -> list[str]:
    """All lines of `advisor inspect`, from the document that --json prints."""
    lines = [*_headline(document, screen), ""]
    rows = [*_file_rows(document), *_block_rows(document), *_text_rows(document)]
    width = max(len(label) for label, _ in rows)
    for label, text in rows:
        indent = " " * (width + 4)
        wrapped = screen.wrap(text, indent, f"  {label.ljust(width)}  ")
        wrapped[0] = wrapped[0].replace(label, screen.paint(label, "bold"), 1)
        lines += wrapped
    if document["tensor_types"]:
        lines += ["", screen.paint("Tensors by type", "bold"), *_tensor_lines(document)]
    if document["details"]:
        lines += ["", screen.paint("Metadata", "bold")]
        details = [[clean(key, 60), clean(str(value), 120)] for key, value in document["details"].items()]
        lines += [f"  {line}" for line in columns(details)]
    if document["oddities"]:
        lines += ["", screen.paint("Mind", "bold")]
        for oddity in document["oddities"]:
            wrapped = screen.wrap(clean(oddity, 600), "    ", "  ! ")
            wrapped[0] = wrapped[0].replace("!", screen.paint("!", "yellow", "bold"), 1)
            lines += wrapped
    return lines


def _headline(document: Mapping[str, Any], screen: Screen) -> list[str]:
    dot = screen.symbol(" · ", " - ")
    facts = [format_bytes(document["file"]["bytes"])]
    if document["quantization"]:
        facts.insert(0, clean(f"{document['architecture'] or ''} {document['quantization']}".strip()))
    if document["n_ctx_train"]:
        facts.append(f"trained for {document['n_ctx_train']:,} tokens")
    name = clean(document["name"] or "without a name")
    title = screen.wrap(f"{name}: {dot.join(facts)}", "  ", "")
    title[0] = title[0].replace(name, screen.paint(name, "bold"), 1)
    return [*title, *screen.wrap(document["kind_text"])]


def _file_rows(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    file = document["file"]
    what = "header snapshot" if file["source"] == "snapshot" else f"GGUF version {file['gguf_version']}"
    shards = f", {len(file['shards'])} parts" if len(file["shards"]) > 1 else ""
    rows = [("file", f"{clean(file['path'], 400)} ({what}{shards})")]
    if document["architecture"]:
        rule = ""
        if document["confidence"]:
            known = f"rules/{document['rule']}" if document["rule"] else "no rule file"
            rule = f" ({clean(known)}, {document['confidence']})"
        rows.append(("architecture", clean(document["architecture"]) + rule))
    if document["parameters"]:
        active = document["active_parameters"]
        count = count_text(document["parameters"]) + (f", {count_text(active)} of them per token" if active else "")
        rows.append(("parameters", count))
    if document["quantization"]:
        made = ", made with an importance matrix" if document["imatrix"] else ""
        bits = document["bits_per_weight"]
        rows.append(("quantization", f"{clean(document['quantization'])}, {bits:.2f} bits per weight{made}"))
    return rows


def _block_rows(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    blocks = document["blocks"]
    if blocks is None:
        return []
    rows = []
    skipped = f", of which the last {blocks['mtp_skipped']} (MTP) are not loaded" if blocks["mtp_skipped"] else ""
    rows.append(("blocks", f"{blocks['total']}{skipped}, {document['n_embd']:,} wide"))
    for group in blocks["kinds"]:
        first, plus, second = group["kind"].partition(" + ")
        text = _KINDS[first].format(n_window=group["n_window"] or 0) + (f" and {second} side by side" if plus else "")
        if first == "window" and blocks["window_pattern"] == "chunked":
            text = text.replace("window", "chunks", 1)
        rows.append(("", f"{group['count']} x {text}: {_ranges(group['blocks'])}"))
    if blocks["use_the_cache_of_others"]:
        rows.append(("", f"attending through the cache of earlier ones: {_ranges(blocks['use_the_cache_of_others'])}"))
    one = len(document["heads"]) == 1
    for index, group in enumerate(document["heads"]):
        sizes = f"{group['head_size_k']}"
        if group["head_size_v"] != group["head_size_k"]:
            sizes += f" (keys), {group['head_size_v']} (values)"
        where = "" if one else f": {_ranges(group['blocks'])}"
        text = f"{group['n_head']}, {group['n_head_kv']} of them for keys and values, size {sizes}{where}"
        rows.append(("" if index else "heads", text))
    rows += _width_rows(document)
    return [*rows, *_cache_rows(document)]


def _width_rows(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = []
    groups = document["feed_forward"]
    for index, group in enumerate(groups[:6]):
        parts = [f"{group['n_ff']:,} wide"] if group["n_ff"] else []
        if group["n_ff_expert"]:
            parts.append(f"{group['n_expert_used']} experts of {group['n_ff_expert']:,}")
        if group["n_ff_shared"]:
            parts.append(f"a shared one of {group['n_ff_shared']:,}")
        where = "" if len(groups) == 1 else f": {_ranges(group['blocks'])}"
        rows.append(("" if index else "feed-forward", " and ".join(parts) + where))
    if len(groups) > 6:
        rows.append(("", f"and {len(groups) - 6} more widths"))
    experts = document["experts"]
    if experts is not None:
        shared = ", and a shared one" if experts["shared_expert"] else ""
        rows.append(("experts", f"{experts['n_expert']} a block, {experts['n_expert_used']} used per token{shared}"))
    return rows


def _cache_rows(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for entry in document["cache"]["per_token"]:
        n_bytes, past = entry["bytes_per_token"], entry["bytes_per_token_past_window"]
        if n_bytes is None:
            text = f"{entry['cache_type']}: not possible, {clean(entry['refused'])}"
        elif not n_bytes:
            continue
        else:
            later = "" if past == n_bytes else f", {_exact(past)} once the windows are full"
            text = f"{entry['cache_type']}: {_exact(n_bytes)} per token{later}"
        rows.append(("" if rows else "cache", text))
    state = document["cache"]["state_bytes_per_slot"]
    if state:
        rows.append(("state", f"{_exact(state)} per slot, however long the context"))
    return rows or [("cache", "none")]


def _text_rows(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = []
    if document["n_vocab"]:
        kind = f" ({clean(document['tokenizer'], 40)}" if document["tokenizer"] else ""
        kind += f", {clean(document['pre_tokenizer'], 40)}" if kind and document["pre_tokenizer"] else ""
        tied = ", one matrix for input and output" if document["tied_embeddings"] else ""
        rows.append(("vocabulary", f"{document['n_vocab']:,} tokens{kind}{')' if kind else ''}{tied}"))
    template = document["chat_template"]
    if template["present"] or template["named"]:
        named = f"; also {clean(', '.join(template['named']))}" if template["named"] else ""
        rows.append(("chat template", f"present, {template['characters']:,} characters{named}"))
    elif document["kind"] == "model":
        rows.append(("chat template", "none"))
    return rows


def _tensor_lines(document: Mapping[str, Any]) -> list[str]:
    rows = [
        [entry["type"], f"{entry['tensors']:,}", format_bytes(entry["bytes"]), f"{100 * entry['share']:.1f} %"]
        for entry in document["tensor_types"]
    ]
    if len(rows) > 1:
        rows.append(["all", f"{document['n_tensors']:,}", format_bytes(document["weights_bytes"]), ""])
    return [f"  {line}" for line in columns(rows, right=(1, 2, 3), gap=3)]


def _ranges(pairs: Sequence[Sequence[int]]) -> str:
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in pairs[:_MAX_RANGES]]
    return ", ".join(shown) + (f" and {len(pairs) - _MAX_RANGES} more ranges" if len(pairs) > _MAX_RANGES else "")


def _exact(n_bytes: int) -> str:
    return f"{n_bytes:,} bytes" if n_bytes < 1 << 20 else f"{n_bytes:,} bytes ({format_bytes(n_bytes)})"
