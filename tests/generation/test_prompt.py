"""Prompts: unforgeable, within budget, lowest ranks dropped first, nothing cut."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gfm.errors import InputError
from gfm.generation.prompt import build_prompt, estimate_tokens
from gfm.types import Path, Prompt, Retrieval, ScoredDocument

HEADER = re.compile(r"^(Documents$|Document: |Reasoning paths$|Path \d+ \(score |Question: )", re.MULTILINE)
# Line boundaries, controls, bidi marks and our own headers: what a forger would write.
HOSTILE = st.lists(
    st.sampled_from(
        [
            *("a", "é", "李", "🙂", " ", "\n", "\r", "\t", "\x00", "\x0b", "\x1c", "\x1d", "\x85", "\u2028", "\u2029"),
            *("\u202e", "\u2066", "\u200f", "\ud800", "Question: x", "Document: y", "Documents", "Reasoning paths"),
            *("Path 1 (score 9.00): ", " --r--> ", " <--r-- ", "--", "-", "<", ">", "(type: t)"),
        ]
    ),
    max_size=8,
).map("".join)


def retrieval(documents=(), paths=(), question="Who?") -> Retrieval:
    scored = tuple(ScoredDocument(title, text, 1.0) for title, text in documents)
    return Retrieval(question, (), (), (), scored, tuple(paths))


def chain(*names: str, score: float = 1.0) -> Path:
    return Path(names[::2], names[1::2], (True,) * (len(names) // 2), score)


def body(prompt: Prompt) -> list[str]:
    return prompt.user.split("\n")


def test_the_layout_is_documents_then_paths_then_question():
    path = Path(("A", "B", "C"), ("r", "s"), (True, False), 2.306, (0, 1, 2), ("song", "entity", "town"))
    prompt = build_prompt(retrieval([("T", "one\ntwo"), ("U", "")], [path]), 4000)
    assert prompt.user == (
        "Documents\n\nDocument: T\n  one\n  two\n\nDocument: U\n\n"
        "Reasoning paths\nPath 1 (score 2.31): A (type: song) --r--> B (type: entity) <--s-- C (type: town)\n\n"
        "Question: Who?"
    )
    assert (prompt.documents, prompt.num_paths) == (("T", "U"), 1)
    assert [m["role"] for m in prompt.messages] == ["system", "user"]


@pytest.mark.parametrize("boundary", ["\r\n", "\r", "\n \n", "\x0b", "\x85", "\u2028", "\u2029"])
def test_every_line_boundary_of_a_passage_starts_an_indented_line(boundary):
    prompt = build_prompt(retrieval([("T", f"one{boundary}two")]), 4000)
    assert "Document: T\n  one\n  two\n\n" in prompt.user


def test_without_evidence_only_the_question_is_left():
    assert build_prompt(retrieval(), 4000).user == "Question: Who?"


@given(st.lists(HOSTILE, min_size=7, max_size=7))
def test_no_data_can_forge_the_structure(data):
    title, text, question, *names, kind = data
    first, relation, last = names
    path = Path((first, last), (relation,), (True,), 1.0, (0, 1), (kind, kind))
    prompt = build_prompt(retrieval([(title, text)], [path], question), 10**6)
    assert [m.group() for m in HEADER.finditer(prompt.user)] == [
        "Documents",
        "Document: ",
        "Reasoning paths",
        "Path 1 (score ",
        "Question: ",
    ]
    # No reader of lines, whatever it takes for a boundary, sees more lines than we wrote.
    assert prompt.user.splitlines() == body(prompt)
    own = ("Documents", "Document: ", "Reasoning paths", "Path 1 ", "Question: ")
    assert all(line == "" or line.startswith(("  ", *own)) for line in body(prompt))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", prompt.user)
    (line,) = [line for line in body(prompt) if line.startswith("Path 1 ")]
    assert line.count("-->") == 1
    assert "<--" not in line
    assert prompt.documents == (title,)


def test_names_of_every_script_and_joined_emoji_come_through():
    names = ["NA", "null", "1984", "東京", "👩‍👩‍👧", 'a, "b"', "C++", "x-ray", "نیم‌فاصله"]
    prompt = build_prompt(retrieval([(n, n) for n in names], [chain(n, "r", n) for n in names]), 10**6)
    for name in names:
        assert f"\nDocument: {name}\n  {name}\n" in prompt.user
        assert f"{name} (type: entity) --r--> {name} (type: entity)" in prompt.user


def count_characters(text: str) -> int:
    return len(text)


def cost_of(documents, paths) -> int:
    return build_prompt(retrieval(documents, paths), 10**6, count_characters).tokens


def test_documents_and_paths_are_filled_in_turn():
    documents, paths = [("D1", "x" * 50), ("D2", "x" * 50)], [chain("a", "r", "b"), chain("c", "r", "d")]
    for kept_documents, kept_paths in [(1, 0), (1, 1), (2, 1), (2, 2)]:
        budget = cost_of(documents[:kept_documents], paths[:kept_paths])
        prompt = build_prompt(retrieval(documents, paths), budget, count_characters)
        assert (len(prompt.documents), prompt.num_paths, prompt.tokens) == (kept_documents, kept_paths, budget)


def test_one_token_less_than_needed_drops_the_item_as_a_whole():
    documents, paths = [("D1", "x" * 50)], [chain("a", "r", "b"), chain("c", "r", "d")]
    prompt = build_prompt(retrieval(documents, paths), cost_of(documents, paths) - 1, count_characters)
    assert prompt.num_paths == 1
    assert "Path 2" not in prompt.user
    assert "--r--> b (type: entity)\n\nQuestion" in prompt.user


def test_the_first_of_a_kind_that_does_not_fit_ends_its_kind_and_not_the_other():
    documents = [("D1", "x"), ("D2", "x" * 5000), ("D3", "x")]
    paths = [chain("a", "r", "b"), chain("c", "r", "d"), chain("e", "r", "f")]
    prompt = build_prompt(retrieval(documents, paths), cost_of(documents[:1], paths) + 100, count_characters)
    assert prompt.documents == ("D1",)
    assert prompt.num_paths == 3


@given(
    st.lists(st.tuples(st.text(max_size=10), st.text(max_size=60)), max_size=4),
    st.lists(st.lists(st.text(max_size=8), min_size=3, max_size=3), max_size=4),
    st.integers(0, 120),
)
def test_every_budget_is_kept_and_what_is_kept_is_the_best(documents, names, spare):
    paths = [chain(*name) for name in names]
    evidence = retrieval(documents, paths)
    budget = build_prompt(retrieval(), 10**6).tokens + spare
    prompt = build_prompt(evidence, budget)
    assert prompt.tokens == estimate_tokens(f"{prompt.system}\n\n{prompt.user}") <= budget
    assert prompt.documents == tuple(title for title, _ in documents[: len(prompt.documents)])
    whole = build_prompt(evidence, 10**6)
    kept = [line for line in body(prompt) if line.startswith("Path ")]
    assert kept == [line for line in body(whole) if line.startswith("Path ")][: prompt.num_paths]


def test_a_budget_below_instructions_and_question_says_what_is_needed():
    least = build_prompt(retrieval(), 10**6).tokens
    assert build_prompt(retrieval([("D", "x")]), least).documents == ()
    with pytest.raises(InputError, match=f"budget_tokens is {least - 1}, .* take {least}"):
        build_prompt(retrieval(), least - 1)


@pytest.mark.parametrize("budget", [0, -5])
def test_a_budget_below_one_is_refused_with_its_value(budget):
    with pytest.raises(InputError, match=f"budget_tokens is {budget};"):
        build_prompt(retrieval(), budget)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        *[("", 0), (" ", 0), ("cat", 1), ("cats", 1), ("horse", 2), ("1984", 2), ("a, b.", 4), ("東京", 2), ("🙂", 4)],
        *[("a\n\nb", 3), ("Łódź", 1), ("x_y", 3)],
    ],
)
def test_estimated_tokens_are_as_documented(text, tokens):
    assert estimate_tokens(text) == tokens


@given(st.text(), st.text())
def test_the_estimate_never_falls_when_text_is_added_and_never_exceeds_the_parts(left, right):
    whole = estimate_tokens(left + right)
    assert max(estimate_tokens(left), estimate_tokens(right)) <= whole
    assert whole <= estimate_tokens(left) + estimate_tokens(right)
