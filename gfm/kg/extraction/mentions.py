"""Which words of a parsed document name an entity: its title, named entities, what stands for them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gfm.text.names import FUNCTION_WORDS, match_key, tokens, without_parenthetical

if TYPE_CHECKING:
    from spacy.tokens import Span, Token

PHRASE = "PHRASE"
"""The type of an entity that is a noun phrase."""

# Amounts tell nothing apart.
_SKIPPED = frozenset({"CARDINAL", "ORDINAL", "PERCENT", "QUANTITY", "TIME", "MONEY"})
_YEAR = re.compile(r"\b\d{4}\b")
_EDGE = " \t\r\n\"'“”‘’.,;:!?()[]{}<>«»–—-*_|/\\"
_ABBREVIATION = re.compile(r"\s*\(([A-Z][A-Z.&]{1,7})\)")
_HE_SHE = frozenset({"he", "she", "his", "her", "him"})
_IT = frozenset({"it", "its"})
_DEFINITE = frozenset({"the", "this"})
_SUBJECTS = frozenset({"nsubj", "nsubjpass"})
_PERSON_NOUN = re.compile(r".*(er|or|ist|ian|man|woman|king|queen|prince|princess|poet|singer|saint|noble|duke)$")
_PHRASES_PER_SENTENCE = 4
_MAX_WORDS = 12  # longer "names" are pieces of text


@dataclass(frozen=True)
class Mention:
    """A place in a sentence that names an entity; `root` is the token that governs it."""

    name: str
    kind: str
    root: Token
    start: int
    end: int


@dataclass
class Topic:
    """What is known of the document's title while its text is read.

    Attributes:
        title: as the document has it.
        pattern: finds the title's name in the text, with or without its parenthetical.
        kind: the noun that the text says it is ("film"), once it has said so.
        is_person: whether "he" and "she" may mean it; None until the text tells.
        full_names: by the last word of a name of several words, the name; "" where two share it.
        aliases: other names of entities, by the name.
        begun: whether a first sentence has been read.
    """

    title: str
    pattern: re.Pattern[str] | None
    kind: str = ""
    is_person: bool | None = None
    full_names: dict[str, str] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    begun: bool = False

    @property
    def words(self) -> list[str]:
        """The words of the title's name, folded."""
        return tokens(without_parenthetical(self.title))


def topic_of(title: str) -> Topic:
    """A topic of which no text has been read."""
    name = without_parenthetical(title).strip() or title
    words = name.split()
    # A title of function words or of one letter is found everywhere.
    findable = len(name) > 1 and not FUNCTION_WORDS.issuperset(tokens(name))
    pattern = r"(?<!\w)" + r"\s+".join(map(re.escape, words)) + r"(?!\w)"
    topic = Topic(title, re.compile(pattern) if findable and words else None)
    if name != title:
        topic.aliases[name] = title
    return topic


def mentions_of(sentence: Span, topic: Topic) -> list[Mention]:
    """The mentions of a sentence from left to right, none inside another.

    Named entities and the title come first, then pronouns and phrases such as "the film" that stand for the title,
    then, where a sentence names nothing, the noun phrases in it.
    """
    named = _without_overlaps([*_title_mentions(sentence, topic), *_entities(sentence, topic)])
    if not topic.begun and sentence.text.strip():
        topic.begun = True
        named = _with_shortened_title(named, topic)
    _learn(sentence, topic, named)
    standing = _stand_ins(sentence, topic, named)
    found = _without_overlaps([*named, *standing])
    if not named:
        found = _without_overlaps([*found, *_phrases(sentence)])
    return sorted(found, key=lambda mention: mention.start)


def _title_mentions(sentence: Span, topic: Topic) -> Iterator[Mention]:
    if topic.pattern is None:
        return
    for match in topic.pattern.finditer(sentence.text):
        span = sentence.char_span(*match.span(), alignment_mode="expand")
        if span is not None:
            yield Mention(topic.title, span[0].ent_type_, span.root, span.start, span.end)


def _with_shortened_title(named: list[Mention], topic: Topic) -> list[Mention]:
    """The first name of the first sentence is the title's where it is a part of it, as in "Princess Maria Antonia"."""
    if not named or any(mention.name == topic.title for mention in named):
        return named
    first = min(named, key=lambda mention: mention.start)
    part, whole = tokens(first.name), topic.words
    if len(part) < 2 or not any(whole[i : i + len(part)] == part for i in range(len(whole))):
        return named
    return [replace(mention, name=topic.title) if mention is first else mention for mention in named]


def _entities(sentence: Span, topic: Topic) -> Iterator[Mention]:
    for entity in sentence.ents:
        kind = entity.label_
        if kind in _SKIPPED or (kind == "DATE" and not _YEAR.search(entity.text)):
            continue
        span = _trimmed(entity)
        if span is None:
            continue
        name = clean_name(span.text)
        if not name or FUNCTION_WORDS.issuperset(tokens(name)):
            continue
        following = _ABBREVIATION.match(sentence.doc.text, span.end_char)
        if following and kind != "DATE" and len(name) > len(following[1]):
            topic.aliases[following[1]] = name
        if kind == "PERSON":
            name = _full_name(name, topic)
        yield Mention(name, kind, span.root, span.start, span.end)


def _full_name(name: str, topic: Topic) -> str:
    """The name that a surname stands for in this document; a name of several words is remembered by its last."""
    words = name.split()
    if len(words) == 1:
        return topic.full_names.get(match_key(name)) or name
    last = match_key(words[-1])
    if topic.full_names.setdefault(last, name) != name and match_key(topic.full_names[last]) != match_key(name):
        topic.full_names[last] = ""
    return name


def _learn(sentence: Span, topic: Topic, named: list[Mention]) -> None:
    """Reads off "TITLE is a KIND" what the title is, and off its mentions whether it is a person."""
    for mention in named:
        if mention.name != topic.title:
            continue
        if mention.kind and topic.is_person is None:
            topic.is_person = mention.kind == "PERSON"
        if topic.is_person and len(topic.words) > 1:
            topic.full_names.setdefault(topic.words[-1], topic.title)
        if not topic.kind and mention.root.dep_ in _SUBJECTS:
            attributes = (
                child for child in mention.root.head.children if child.dep_ == "attr" and child.pos_ == "NOUN"
            )
            topic.kind = next((noun.lower_ for noun in attributes), "")
            if _PERSON_NOUN.fullmatch(topic.kind):
                topic.is_person = True


def _stand_ins(sentence: Span, topic: Topic, named: list[Mention]) -> Iterator[Mention]:
    """Pronouns and "the KIND" that mean the title.

    A pronoun counts only where nothing else of the kind has been named before it in the sentence.
    """
    for token in sentence:
        word = token.lower_
        if word in _HE_SHE and topic.is_person:
            rival = any(m.kind == "PERSON" and m.name != topic.title and m.start < token.i for m in named)
            if not rival:
                yield Mention(topic.title, "", token, token.i, token.i + 1)
        elif word in _IT and topic.is_person is False and (token.dep_ in _SUBJECTS or token.dep_ == "poss"):
            rival = any(m.name != topic.title and m.start < token.i for m in named)
            if not rival:
                yield Mention(topic.title, "", token, token.i, token.i + 1)
        elif word == topic.kind and token.dep_ in _SUBJECTS and token.n_lefts == 1:
            first = token.nbor(-1) if token.i > sentence.start else token
            if first.lower_ in _DEFINITE:
                yield Mention(topic.title, "", token, token.i - 1, token.i + 1)


def _phrases(sentence: Span) -> Iterator[Mention]:
    count = 0
    for chunk in sentence.noun_chunks:
        span = _trimmed(chunk)
        if span is None or span.root.pos_ not in ("NOUN", "PROPN") or count == _PHRASES_PER_SENTENCE:
            continue
        name = clean_name(span.text)
        # One common noun ("people") says nothing of this document.
        if len(span) > 1 and not any(token.like_num for token in span) and not FUNCTION_WORDS.issuperset(tokens(name)):
            count += 1
            yield Mention(name, PHRASE, span.root, span.start, span.end)


def clean_name(text: str) -> str:
    """A name on one line, without quotes and marks around it; empty where it is a piece of text rather than a name."""
    name = " ".join(text.split()).strip(_EDGE)
    name = name.removesuffix("'s").removesuffix("’s").rstrip()
    if name.count("(") != name.count(")"):
        name = name.replace("(", " ").replace(")", " ")
        name = " ".join(name.split())
    return name if len(name.split()) <= _MAX_WORDS and len(name) <= 200 else ""


def _trimmed(span: Span) -> Span | None:
    """A span without determiners, pronouns and possessive marks at its ends."""
    start, end, doc = span.start, span.end, span.doc
    while start < end and (doc[start].pos_ in ("DET", "PRON", "PUNCT", "SPACE") or doc[start].lower_ in ("the", "a")):
        start += 1
    while end > start and (doc[end - 1].tag_ == "POS" or doc[end - 1].pos_ in ("PUNCT", "SPACE")):
        end -= 1
    return doc[start:end] if start < end else None


def _without_overlaps(mentions: list[Mention]) -> list[Mention]:
    """Earlier mentions in the list win over later ones that share a token with them."""
    taken: set[int] = set()
    kept = []
    for mention in mentions:
        if taken.isdisjoint(range(mention.start, mention.end)):
            taken.update(range(mention.start, mention.end))
            kept.append(mention)
    return kept
