"""The normal form of names: what merges spellings of one entity and finds names in a question."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

# Scripts written without spaces between words; one token per character makes their names findable
# inside a sentence. Hangul is among them because particles are glued to the noun.
_UNSPACED = re.compile(
    "["
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\u1780-\u17ff"  # Burmese, Khmer
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"  # iteration marks, kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    "\uac00-\ud7a3"  # Hangul syllables
    "]"
)
# Unicode calls these punctuation, but "C#" is not "C" and "5%" is not "5".
_KEPT_PUNCTUATION = frozenset("#%")
# Function words: as the whole of a name they link every question that is written in English.
FUNCTION_WORDS = frozenset(
    "a about after all also an and any are as at be been before but by can did do does for from had has have he her "
    "his how if in into is it its many more most much no not of on one or other s she so some than that the their "
    "them then there these they this those to was we were what when where which while who whom whose why will with "
    "would you your".split()
)
_PARENTHETICAL = re.compile(r"\s*\([^()]*\)\s*$")


@lru_cache(maxsize=1 << 16)
def match_key(name: str) -> str:
    """Folds a name to the key under which its spellings are one entity.

    Compatibility forms (NFKC), case, punctuation and whitespace are folded; letters, digits, accents and
    marks of every script and symbols such as `+`, `#` or emoji are kept, for they tell names apart. A
    name made of punctuation alone keeps itself as key, so no non-blank name is lost.

    The result is stable: `match_key(match_key(x)) == match_key(x)`.

    Returns:
        The key; empty only for a blank name.
    """
    key = name
    while (folded := _fold(key)) != key:
        key = folded
    return key or name.strip()


def tokens(text: str) -> list[str]:
    """Splits a text into the tokens of its match key, to scan it for names.

    Words are split at spaces; in scripts written without spaces every character is a token.
    """
    return _UNSPACED.sub(lambda match: f" {match[0]} ", match_key(text)).split()


def tokens_by_word(text: str) -> list[tuple[str, int]]:
    """The tokens of a text, each with the position of its word in `text.split()`, where it stands as written.

    Words of punctuation alone give no token, as they give none inside a longer text.
    """
    return [(token, position) for position, word in enumerate(text.split()) if _fold(word) for token in tokens(word)]


def without_parenthetical(title: str) -> str:
    """A title without a parenthetical at its end: `Publix (2)` and `Hello Love (song)` name `Publix`, `Hello Love`."""
    return _PARENTHETICAL.sub("", title)


def _fold(text: str) -> str:
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join("".join(map(_keep, unicodedata.normalize("NFKC", folded))).split())


@lru_cache(maxsize=1 << 16)
def _keep(char: str) -> str:
    """Maps a character to itself, to a space, or (invisible format characters) to nothing."""
    category = unicodedata.category(char)
    if category == "Cf" or "\ufe00" <= char <= "\ufe0f":
        return ""
    if category[0] in "LNM" or category in ("So", "Sm", "Sc", "Co", "Cn", "Cs") or char in _KEPT_PUNCTUATION:
        return char
    return " "
