from __future__ import annotations

import pytest

from advisor.errors import RuleError
from advisor.rulebook import RuleDocument, check_document, check_sources, either, merge_documents

# ---------------------------------------------------------------- merging


def test_later_layer_wins_key_by_key_and_origins_say_who():
    merged, origins = merge_documents(
        [
            ("shipped", {"schema_version": 1, "margin": {"cuda": 300, "vulkan": 400}, "order": ["a", "b"]}),
            ("etc", {"schema_version": 1, "margin": {"cuda": 500}}),
            ("user", {"order": ["c"], "new": {"deep": {"key": 1}}}),
        ]
    )
    assert merged == {
        "schema_version": 1,
        "margin": {"cuda": 500, "vulkan": 400},
        "order": ["c"],
        "new": {"deep": {"key": 1}},
    }
    assert origins == {
        "schema_version": "etc",
        "margin.cuda": "etc",
        "margin.vulkan": "shipped",
        "order": "user",
        "new.deep.key": "user",
    }


def test_named_tables_merge_by_name_and_new_ones_go_last():
    merged, origins = merge_documents(
        [
            ("shipped", {"gpu": [{"name": "A", "mib": 1, "tflops": 2}, {"name": "B", "mib": 3}]}),
            ("user", {"gpu": [{"name": "C", "mib": 9}, {"name": "A", "mib": 8}]}),
        ]
    )
    assert merged["gpu"] == [{"name": "A", "mib": 8, "tflops": 2}, {"name": "B", "mib": 3}, {"name": "C", "mib": 9}]
    assert origins["gpu[A].mib"] == "user"
    assert origins["gpu[A].tflops"] == "shipped"
    assert origins["gpu[C].mib"] == "user"


def test_tables_without_names_are_replaced_as_a_whole():
    merged, origins = merge_documents([("a", {"step": [{"x": 1}, {"x": 2}]}), ("b", {"step": [{"x": 3}]})])
    assert merged["step"] == [{"x": 3}]
    assert origins == {"step": "b"}


def test_the_same_name_twice_is_an_error_that_names_file_and_entry():
    with pytest.raises(RuleError, match=r"user\.toml: gpu holds two entries named 'A'"):
        merge_documents([("user.toml", {"gpu": [{"name": "A"}, {"name": "A"}]})])


@pytest.mark.parametrize(
    ("old", "new", "left"),
    [
        ({"k": {"a": 1, "b": {"c": 2}}}, {"k": 5}, {"k": "new"}),
        ({"k": 5}, {"k": {"a": 1}}, {"k.a": "new"}),
        ({"k": [{"name": "A", "x": 1}]}, {"k": []}, {"k": "new"}),
        ({"k": [1, 2]}, {"k": [{"name": "A"}]}, {"k[A].name": "new"}),
    ],
)
def test_a_change_of_shape_leaves_no_stale_origin(old, new, left):
    merged, origins = merge_documents([("old", {**old, "other": 1}), ("new", new)])
    assert merged == {**new, "other": 1}
    assert origins == {**left, "other": "old"}


def test_merging_leaves_the_layers_untouched():
    shipped = {"t": {"a": 1}, "gpu": [{"name": "A", "x": 1}]}
    merge_documents([("shipped", shipped), ("user", {"t": {"a": 2}, "gpu": [{"name": "A", "x": 2}]})])
    assert shipped == {"t": {"a": 1}, "gpu": [{"name": "A", "x": 1}]}


def test_keys_that_toml_would_quote_are_quoted_in_dotted_keys():
    _, origins = merge_documents([("a", {"by": {"RTX 3060": {"x.y": 1}}})])
    assert origins == {'by."RTX 3060"."x.y"': "a"}


def test_a_document_of_one_layer_and_of_two():
    one = RuleDocument("x.toml", (("/a/x.toml", {"k": 1}),))
    assert (one.data, one.origins, one.files) == ({"k": 1}, {"k": "/a/x.toml"}, ("/a/x.toml",))
    two = RuleDocument("x.toml", (("/a/x.toml", {"k": 1, "l": 1}), ("/b/x.toml", {"k": 2})))
    assert two.data == {"k": 2, "l": 1}
    assert two.origins == {"k": "/b/x.toml", "l": "/a/x.toml"}


# ---------------------------------------------------------------- schemas

SCHEMA = {
    "name": "str 1..",
    "n_layer?": "int 1..1000",
    "scale?": "number 0..",
    "flag?": "bool",
    "kind?": ("full", "sliding", 3),
    "layers?": ["int 0.. | str"],
    "some?": ["int", 1],
    "window?": {"size": "int 1..", "pattern?": ["bool"]},
    "backends?": {"*": {"margin_mib": "int -5..5"}},
    "gpu?": [{"name": "str", "mib": "int"}],
    "size?": either("int 1..", {"key": "str"}),
    "free?": "any",
}


def good(**more):
    return {"schema_version": 1, "name": "x", **more}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"n_layer": 1},
        {"n_layer": 1000},
        {"scale": 0},
        {"scale": 0.5},
        {"flag": False},
        {"kind": "sliding"},
        {"kind": 3},
        {"layers": []},
        {"layers": [0, "all"]},
        {"some": [5]},
        {"window": {"size": 512, "pattern": [True, False], "source": "spec", "measured": "here", "note": "why"}},
        {"backends": {"cuda": {"margin_mib": -5}, "vulkan": {"margin_mib": 5}}},
        {"gpu": [{"name": "A", "mib": 1}, {"name": "B", "mib": 1}]},
        {"size": 5},
        {"size": {"key": "k"}},
        {"free": {"any": ["thing"]}},
    ],
)
def test_documents_that_follow_the_schema(more):
    check_document(good(**more), SCHEMA, "f.toml")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"name": "x"}, "f.toml: schema_version is missing; begin the file with schema_version = 1."),
        ({"schema_version": 2, "name": "x"}, "f.toml: schema_version is 2, this advisor reads 1"),
        ({"schema_version": True, "name": "x"}, "f.toml: schema_version is true"),
        ({"schema_version": 1.0, "name": "x"}, "f.toml: schema_version is 1.0"),
        ({"schema_version": 1}, "f.toml: name is missing; add it (a text in quotes that is not empty)."),
        (good(n_layers=3), "f.toml: unknown key n_layers; did you mean n_layer?"),
        (good(zzzzzz=3), "f.toml: unknown key zzzzzz; known here: backends, flag,"),
        (good(name=""), 'f.toml: name is "", expected a text in quotes that is not empty.'),
        (good(name="  "), "f.toml: name is "),
        (good(name=5), "f.toml: name is 5, expected a text"),
        (good(n_layer=0), "f.toml: n_layer is 0, expected a whole number from 1 to 1000."),
        (good(n_layer=1001), "f.toml: n_layer is 1001"),
        (good(n_layer=True), "f.toml: n_layer is true, expected a whole number"),
        (good(n_layer=2.0), "f.toml: n_layer is 2.0"),
        (good(n_layer="2"), 'f.toml: n_layer is "2"'),
        (good(scale=-0.1), "f.toml: scale is -0.1, expected a number of at least 0."),
        (good(scale=float("nan")), "f.toml: scale is nan"),
        (good(scale=float("inf")), "f.toml: scale is inf"),
        (good(flag=1), "f.toml: flag is 1, expected true or false."),
        (good(kind="round"), 'f.toml: kind is "round", expected one of "full", "sliding", 3.'),
        (good(kind=3.0), "f.toml: kind is 3.0"),
        (good(layers=3), "f.toml: layers is 3, expected a list, each item a whole number of at least 0 or a text"),
        (good(layers=[1, -1]), "f.toml: layers[1] is -1"),
        (good(some=[]), "f.toml: some is an empty list, expected a list, each item a whole number."),
        (good(window=512), "f.toml: window is 512, expected a table."),
        (good(window={}), "f.toml: window.size is missing"),
        (good(window={"size": 1, "patern": []}), "f.toml: unknown key window.patern; did you mean pattern?"),
        (good(window={"size": 1, "source": 5}), "f.toml: window.source is 5"),
        (good(window={"size": 1, "source": ""}), "f.toml: window.source is"),
        (good(backends={"cuda": {"margin_mib": 6}}), "f.toml: backends.cuda.margin_mib is 6"),
        (good(gpu=[{"name": "A", "mib": "1"}]), 'f.toml: gpu[A].mib is "1"'),
        (good(gpu=[{"name": "A", "mib": 1}] * 2), "f.toml: gpu holds two entries named 'A'"),
        (good(size=0), "f.toml: size is 0, expected a whole number of at least 1 or a table."),
        (good(size={"kez": "k"}), "f.toml: unknown key size.kez; did you mean key?"),
    ],
)
def test_documents_that_break_the_schema(document, message):
    with pytest.raises(RuleError) as error:
        check_document(document, SCHEMA, "f.toml")
    assert str(error.value).startswith(message)


def test_a_mistake_in_a_schema_is_not_taken_for_one_in_the_document():
    with pytest.raises(ValueError, match="no such type 'integer'"):
        check_document(good(x=1), {"name": "str", "x": "integer"}, "f.toml")


def test_schema_version_may_not_hide_deeper():
    with pytest.raises(RuleError, match=r"unknown key window\.schema_version"):
        check_document(good(window={"size": 1, "schema_version": 1}), SCHEMA, "f.toml")


# ---------------------------------------------------------------- sources


@pytest.mark.parametrize(
    "document",
    [
        {"schema_version": 1, "text": "no number", "flag": True},
        {"schema_version": 1, "source": "spec", "k": 1, "t": {"k": 2}},
        {"schema_version": 1, "t": {"measured": "b11434", "k": 2, "deep": {"list": [1, 2]}}},
        {"schema_version": 1, "gpu": [{"name": "A", "mib": 1, "source": "maker"}]},
    ],
)
def test_numbers_with_a_source(document):
    check_sources(document, "f.toml")


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"k": 1}, "k"),
        ({"k": 1.5, "source": ""}, "k"),
        ({"k": 1, "source": "  "}, "k"),
        ({"k": 1, "source": 5}, "k"),
        ({"t": {"k": 2}, "other": {"source": "a brother's source is no source"}}, "t.k"),
        ({"t": {"k": 2, "deep": {"source": "a child's neither"}}}, "t.k"),
        ({"t": {"list": [["a", 3]]}}, "t.list[0][1]"),
        ({"gpu": [{"name": "A", "mib": 1, "source": "s"}, {"name": "B", "mib": 1}]}, "gpu[B].mib"),
        ({"t": {"schema_version": 1}}, "t.schema_version"),
    ],
)
def test_numbers_without_a_source(document, path):
    with pytest.raises(RuleError) as error:
        check_sources({"schema_version": 1, **document}, "f.toml")
    assert str(error.value).startswith(f"f.toml: {path} is a number without a source; add source = ")
