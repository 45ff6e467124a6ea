"""Every key of the configuration: what it takes, what it means, an example. The only place that lists them."""

from __future__ import annotations

from advisor.configuration import values
from advisor.configuration.formats import format_lines
from advisor.configuration.types import ENGINES, STORES, Daemon, Target
from advisor.configuration.values import Reader
from advisor.records import NamedTuple


class Key(NamedTuple):
    """One key. `example` is a TOML value; for a key with a default it is the default."""

    name: str
    read: Reader
    allowed: str
    example: str
    doc: str
    required: bool = False


class Table(NamedTuple):
    """A table of keys: "one" ([daemon]), "named" ([target.NAME]) or a "list" ([[model]])."""

    name: str
    kind: str
    doc: str
    keys: tuple[Key, ...]
    names: tuple[str, ...] = ()  # of a "named" one, where only some are possible
    example: str = ""  # a name
    by: str = ""  # of a "list": the key that tells its entries apart

    def key(self, name: str) -> Key | None:
        """The key of that name."""
        return next((key for key in self.keys if key.name == name), None)


_BOOL = "true or false"
_CTX = "a whole number of tokens from 256 to 1073741824"
_PATH = 'an absolute path in quotes, such as "/srv/x" or "~/x"'
_ctx = values.whole(256, 1 << 30)
_WISHES = (
    Key("intent", values.intent, 'an intent in quotes, such as "context" or "parallel:4"', '"balanced"',
        'What to aim for: "balanced", "context", "speed", "quality" or "parallel:N".'),
    Key("min_ctx", _ctx, _CTX, "16384", "Least tokens of context for each slot."),
    Key("max_ctx", _ctx, _CTX, "131072", "Most tokens of context for each slot."),
    Key("min_tps", values.number(0, 1e6), "a number from 0 to 1000000", "10.0", "Least tokens/s of an answer."),
)  # fmt: skip

TOP = Table("", "one", "", (
    Key("folders", values.listed(values.path), 'a list of absolute paths, such as ["/srv/models"]', '["/srv/models"]',
        "More folders with models, besides the stores below. They are looked through with everything in them."),
))  # fmt: skip
TABLES = (
    Table("stores", "one", "Which programs' model stores are looked into.", tuple(
        Key(name, values.flag, _BOOL, "true", doc) for name, doc in zip(STORES, (
            "Ollama's models.",
            "The Hugging Face cache, which llama.cpp's -hf shares.",
            "LM Studio's models.",
            "Jan's models.",
            "GPT4All's models.",
            "llama.cpp's old flat cache.",
        ), strict=True)
    )),
    Table("engine", "named", 'The engines of this machine, each a table of its own: [engine."llama.cpp"], '
          "[engine.ollama], ...\nWhat is left away is found, and without an url no engine is told to reload.", (
        Key("binary", values.path, _PATH, '"/usr/local/bin/llama-server"', "The program to ask for its options."),
        Key("build", values.whole(1, 10**6), "a whole number from 1 to 1000000", "11434",
            "llama.cpp's build that the figures are for; else the newest known."),
        Key("url", values.url, 'an address in quotes, such as "http://127.0.0.1:8080"', '"http://127.0.0.1:8080"',
            "Where the running engine is told to reload after its config has changed."),
        Key("allow_remote", values.flag, _BOOL, "false", "Whether the url may lead to another machine."),
    ), names=ENGINES, example='"llama.cpp"'),
    Table("target", "named", "The config files to keep right, each a table with a name of your choice. The "
          f"formats, and the path that each wants:\n{format_lines()}", (
        Key("format", values.text, "the name of a config format in quotes", '"llama-server-preset"',
            "What kind of file it is, one of the list above.", required=True),
        Key("path", values.path, _PATH, '"~/.config/llama-server/models.ini"',
            "The file or folder that the format wants.", required=True),
        Key("engine", values.one_of(*ENGINES), f"one of {', '.join(ENGINES)}", '"llama.cpp"',
            "Whose build and url count; else those of the program that the format is for."),
        Key("enabled", values.flag, _BOOL, str(Target._field_defaults["enabled"]).lower(),
            "Whether advisor may write the file. Until then it only says what it would write."),
        Key("mode", values.one_of("exact", "safe"), '"exact" or "safe"', '"exact"',
            'What is written: "exact" places every layer, "safe" leaves that to the engine\'s own fit.'),
        Key("models", values.listed(values.text), 'a list of patterns, such as ["*"]', '["*"]',
            "Which models go into the file, by name or path; * and ? stand for anything."),
        Key("reload", values.flag, _BOOL, "true", "Whether the engine is told to reload afterwards."),
    ), example="router"),
    Table("defaults", "one", "What every model is chosen for, unless [[model]] says otherwise.", _WISHES),
    Table("model", "list", "Wishes for some models only; as many [[model]] as you like, later ones win.",
          by="match", keys=(
        Key("match", values.text, 'a pattern in quotes, such as "qwen3*"', '"qwen3*"',
            "The models, by name or path; * and ? stand for anything, capitals do not matter.", required=True),
        Key("exclude", values.flag, _BOOL, "false", "Whether they are kept out of every config file."),
        *_WISHES,
        Key("pins", values.pins, "llama.cpp's options without dashes, such as { ctx-size = 32768 }",
            '{ ctx-size = 32768, cache-type-k = "q8_0", n-gpu-layers = "all" }',
            "Settings that stay as you give them, under llama.cpp's own names; the rest is chosen around them."),
    )),
    Table("set", "list", "Models that are to be resident together, as many [[set]] as you like: they are planned "
          "jointly, so that all of them\nfit at the same time. llama-swap gets a group for each.", by="name", keys=(
        Key("name", values.text, 'a name in quotes, such as "daily"', '"daily"',
            "What the set is called, in llama-swap too.", required=True),
        Key("models", values.filled(values.text), 'a list of patterns, such as ["qwen3-14b*", "*embed*"]',
            '["qwen3-14b*", "*embed*"]',
            "Its models, by name or path, the main one first: it gets what the others leave. * and ? stand for "
            "anything.", required=True),
        Key("targets", values.filled(values.text), 'a list of names of targets, such as ["router"]', '["router"]',
            "The targets in which they are planned together; else all."),
    )),
    Table("budget", "one", "Memory that no plan may touch.", (
        Key("keep_free", values.size, 'a size in quotes, such as "1GiB"', '"1GiB"',
            "On each GPU; else what the rules keep ('advisor rules show policy.toml')."),
        Key("keep_free_ram", values.size, 'a size in quotes, such as "4GiB"', '"4GiB"', "Of system memory."),
    )),
    Table("daemon", "one", "The service ('advisor daemon').", (
        Key("quiet_hours", values.quiet_hours, 'FROM-TO in quotes, such as "22:00-07:00"', '"22:00-07:00"',
            "A time of the day in which no config file is written; what came up is written afterwards."),
        Key("rescan_s", values.number(10, 86400), "a number of seconds from 10 to 86400",
            str(Daemon().rescan_s), "Everything is looked through anew so often, in case an event was missed."),
        Key("debounce_s", values.number(0.1, 600), "a number of seconds from 0.1 to 600", str(Daemon().debounce_s),
            "A file must have been quiet for so long before it is read."),
    )),
)  # fmt: skip
BY_NAME = {table.name: table for table in TABLES}
