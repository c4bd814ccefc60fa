from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gfm.text.names import match_key, tokens


@given(st.text())
def test_the_key_of_a_key_is_itself(name: str) -> None:
    assert match_key(match_key(name)) == match_key(name)


@given(st.text().filter(str.strip))
def test_no_non_blank_name_is_lost(name: str) -> None:
    assert match_key(name)


@given(st.text())
def test_tokens_are_those_of_the_key(name: str) -> None:
    assert tokens(name) == tokens(match_key(name))
    assert "".join(tokens(name)) == "".join(match_key(name).split())


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("O'Brien", "o’brien"),
        ("  New\tYork\n", "new york"),
        ("Ａｐｐｌｅ", "apple"),
        ("Straße", "STRASSE"),
        ("U.S. Constitution", "U S constitution"),
        ("Zoe\u0308", "Zoë"),
        ("soft\u00adhyphen", "softhyphen"),
        ("❤\ufe0f", "❤"),
    ],
)
def test_spellings_of_one_name_share_a_key(first: str, second: str) -> None:
    assert match_key(first) == match_key(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("C", "C++"),
        ("C", "C#"),
        ("5", "5%"),
        ("Muller", "Müller"),
        ("東京", "京東"),
        ("🍎", "🍏"),
        ("1963", "1964"),
        ("Яна", "Ана"),
        ("!!!", "???"),
        ("NA", "null"),
    ],
)
def test_different_names_keep_different_keys(first: str, second: str) -> None:
    assert match_key(first) != match_key(second)


@pytest.mark.parametrize("blank", ["", " ", "\n\t", "\u3000"])
def test_a_blank_name_has_an_empty_key(blank: str) -> None:
    assert match_key(blank) == ""
    assert tokens(blank) == []


def test_tokens_split_words_at_spaces_and_unspaced_scripts_at_characters() -> None:
    assert tokens("Who wrote C++ at AT&T?") == ["who", "wrote", "c++", "at", "at", "t"]
    assert tokens("東京タワーは333m?") == ["東", "京", "タ", "ワ", "ー", "は", "333m"]
    assert tokens("서울은 Seoul") == ["서", "울", "은", "seoul"]
