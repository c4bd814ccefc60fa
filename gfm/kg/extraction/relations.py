"""Relations between the mentions of a sentence, read off the dependency tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gfm.kg.extraction.mentions import Mention

if TYPE_CHECKING:
    from spacy.tokens import Token

_SUBJECTS = frozenset({"nsubj", "nsubjpass", "csubj"})
_PLACES = frozenset({"GPE", "LOC", "FAC"})
_ATTRIBUTES = frozenset({"DATE", "NORP", "LANGUAGE"})  # "1933" directed nobody
_STEPS_TO_MEETING = 6  # a longer path says little that a few words could
_WORDS_IN_RELATION = 3
_MENTIONS_PER_SENTENCE = 40
_CONTENT = frozenset({"VERB", "NOUN", "ADP", "PART", "ADJ", "PROPN"})
_IS, _HAS, _IN, _DATED = "is", "has", "in", "dated"


def relations_of(mentions: Sequence[Mention]) -> Iterator[tuple[Mention, str, Mention]]:
    """Yields `(head, relation, tail)` for mentions that the tree joins without a third one between them.

    The relation is what stands on the path between the two, from head to tail, without auxiliaries and articles:
    "directed by", "born in", "capital of". The subject is the head; where there is none, what governs the other; else
    what comes first.
    """
    mentions = mentions[:_MENTIONS_PER_SENTENCE]
    owner = {token: i for i, mention in enumerate(mentions) for token in mention.root.doc[mention.start : mention.end]}
    for j, later in enumerate(mentions):
        for i in range(j):
            if mentions[i].name == later.name:
                continue
            path = _path(mentions[i].root, later.root)
            if path is None or any(owner.get(token, i) not in (i, j) for token in path):
                continue
            head, tail = mentions[i], later
            if not _leads(head.root, tail.root):
                head, tail, path = tail, head, path[::-1]
            relation = _relation(head, tail, path)
            if relation:
                yield head, relation, tail


def _relation(head: Mention, tail: Mention, path: Sequence[Token]) -> str:
    """What the path says of the two, or nothing where they only happen to stand in one sentence."""
    is_subject = _first_of_conjunction(head.root).dep_ in _SUBJECTS
    if not is_subject and (head.kind in _ATTRIBUTES or _is_aside(head.root, path)):
        return ""
    if head.kind == tail.kind == "DATE":
        return ""
    own = {token for mention in (head, tail) for token in mention.root.doc[mention.start : mention.end]}
    return _direct(head, tail) or _words(path, own)


def _is_aside(head: Token, path: Sequence[Token]) -> bool:
    """Whether the way up from the head leaves a prepositional phrase or a clause: then it governs nothing on it."""
    governors = set(head.ancestors)
    up = [token for token in path if token in governors]
    return any(token.pos_ == "ADP" or (token.pos_ == "VERB" and token.dep_ == "conj") for token in up) or any(
        token.pos_ == "VERB" and token.dep_ == "conj" and token.head in governors for token in path
    )


def _path(first: Token, second: Token) -> list[Token] | None:
    """The tokens from `first` up to the lowest common governor and down to `second`; None where it is too long.

    What a conjunction joins has the same governor: "A and B wrote C" leads from B to C as it does from A.
    """
    up, down = _governors(first), _governors(second)
    place = {token: i for i, token in enumerate(up)}
    meeting = next((i for i, token in enumerate(down) if token in place), None)
    if meeting is None or _first_of_conjunction(first) == _first_of_conjunction(second):
        return None
    return [*up[: place[down[meeting]] + 1], *reversed(down[:meeting])]


def _governors(token: Token) -> list[Token]:
    found = [token]
    while len(found) <= _STEPS_TO_MEETING:
        current = _first_of_conjunction(found[-1])
        if current.head == current:
            break
        found.append(current.head)
    return found


def _first_of_conjunction(token: Token) -> Token:
    """The first of the names that a conjunction joins; verbs in a row say different things and stay themselves."""
    while token.dep_ == "conj" and token.pos_ not in ("VERB", "AUX") and token.head.pos_ not in ("VERB", "AUX"):
        token = token.head
    return token


def _leads(first: Token, second: Token) -> bool:
    """Whether the first is the head: the subject, else the owner, else the governor, else simply the first."""
    roles = _first_of_conjunction(first).dep_, _first_of_conjunction(second).dep_
    subjects = roles[0] in _SUBJECTS, roles[1] in _SUBJECTS
    if subjects[0] != subjects[1]:
        return subjects[0]
    if "poss" in roles:
        return roles[0] == "poss"
    return second not in set(first.ancestors)


def _direct(head: Mention, tail: Mention) -> str:
    """The relation of two names that stand together without a word between them; empty where there is none."""
    if head.root.head == tail.root and head.root.dep_ == "poss":
        return _HAS
    if tail.root.head == head.root and tail.root.dep_ in ("appos", "npadvmod"):
        if tail.kind == "DATE":
            return _DATED
        if head.kind in _PLACES and tail.kind in _PLACES:
            return _IN
        return _IS if tail.root.dep_ == "appos" else ""
    return ""


def _words(path: Sequence[Token], own: set[Token]) -> str:
    """Up to four words that say how the ends of a path are related; empty where it holds none."""
    inner = [token for token in path if token not in own]
    content = [
        token
        for token in inner
        if token.pos_ in _CONTENT and token.dep_ not in ("aux", "auxpass") and token.tag_ != "POS" and token.is_alpha
    ]
    # In "a film directed by" the verb says it, in "is the capital of" the noun.
    verbs = [i for i, token in enumerate(content) if token.pos_ == "VERB"]
    if verbs:
        content = content[verbs[-1] :]
    if not content:
        return _IS if any(token.lemma_ == "be" for token in inner) else ""
    return " ".join(token.lower_ for token in content[-_WORDS_IN_RELATION:])
