"""Sentences of running text by rule: deterministic and without a model. It need not be perfect, only sensible."""

import re

# End marks, closing quotes or brackets, and white space; the marks of Chinese and Japanese need no space.
END = re.compile(r"[.!?…]+[^\w\s]*\s+|[\u3002\uff01\uff1f]+[^\w\s]*\s*")
LAST_WORD = re.compile(r"\w[\w.]*$")
# A title, or what is followed by a number: the point after them does not end a sentence.
ABBREVIATIONS = {
    *("mr", "mrs", "ms", "dr", "prof", "st", "rev", "gen", "col", "capt", "lt", "sgt", "gov", "sen", "hon"),
    *("e.g", "i.e", "vs", "cf", "ca", "approx", "vol", "fig", "ch", "pp", "eds"),
}


def sentences(text: str) -> list[str]:
    """The sentences of a text; a line break ends one, too."""
    return [sentence for line in text.splitlines() for sentence in _of_line(" ".join(line.split()))]


def _of_line(line: str) -> list[str]:
    found, start = [], 0
    for end in END.finditer(line):
        if not _goes_on(line[start : end.start()], end.group(), line[end.end() :]):
            found.append(line[start : end.end()].strip())
            start = end.end()
    return [sentence for sentence in (*found, line[start:]) if sentence]


def _goes_on(before: str, mark: str, after: str) -> bool:
    """Whether the mark is inside a sentence: a small letter follows, or it is the point of an initial or abbreviation."""
    last = LAST_WORD.search(before)
    word = last.group().lower() if last else ""
    shortened = mark.startswith(".") and (word in ABBREVIATIONS or (len(word) == 1 and word.isalpha()))
    return shortened or after[:1].islower()
