"""The formulas of the built-in targets, typeset: MathML, which browsers draw by themselves."""

from __future__ import annotations


def formula(name: str) -> str:
    """The j-th output token of a built-in target as a `<math>` element."""
    left = f"{_name('f')}{_sub(_paren(_name('x')), _name('j'))}{_op('=')}"
    return f'<math display="inline">{left}{_RIGHT[name]}</math>'


def in_words(name: str) -> str:
    """What the formula does not say by itself, if anything."""
    return _WORDS.get(name, "")


def _name(letter: str) -> str:
    return f"<mi>{letter}</mi>"


def _number(value: str) -> str:
    return f"<mn>{value}</mn>"


def _op(sign: str) -> str:
    return f"<mo>{sign}</mo>"


def _row(*parts: str) -> str:
    return f"<mrow>{''.join(parts)}</mrow>"


def _paren(*parts: str) -> str:
    return _row(_op("("), *parts, _op(")"))


def _sub(base: str, index: str) -> str:
    return f"<msub>{base}{index}</msub>"


def _frac(above: str, below: str) -> str:
    return f"<mfrac>{above}{below}</mfrac>"


def _below(big: str, index: str) -> str:
    return f"<munder>{big}{index}</munder>"


_WORDS = {
    "softmax-mean": "One attention head with identity weights.",
    "rank": "The share of the other tokens below it; ramp(t) is 2t + ½, cut to [0, 1].",
    "sort": "The j-th smallest, row by row.",
    "shift": "The first token becomes 0.",
}
_J, _K, _N = _name("j"), _name("k"), _name("n")
_X_J, _X_K = _sub(_name("x"), _J), _sub(_name("x"), _K)
_SUM, _MAX = "<mo>∑</mo>", '<mi mathvariant="normal">max</mi>'
_UP_TO_J = _row(_K, _op("≤"), _J)
_MEAN = _row(_frac(_number("1"), _N), _below(_SUM, _K), _X_K)
_SCORE = _frac(_row(_op("⟨"), _X_J, _op(","), _X_K, _op("⟩")), _name("d"))
_RAMP = _row('<mi mathvariant="normal">ramp</mi>', _paren(_X_J, _op("-"), _X_K))
_RIGHT = {
    "scaled-mean": _row(_X_J, _op("·"), _MEAN),
    "softmax-mean": _row(
        _below(_SUM, _K), _sub('<mi mathvariant="normal">softmax</mi>', _K), _paren(_SCORE), _op("·"), _X_K
    ),
    "centered": _row(_X_J, _op("-"), _MEAN),
    "relative-max": _row(_X_J, _op("-"), _below(_MAX, _K), _X_K),
    "rank": _row(
        _frac(_number("1"), _row(_N, _op("-"), _number("1"))), _below(_SUM, _row(_K, _op("≠"), _J)), _RAMP
    ),
    "reverse": _sub(_name("x"), _row(_N, _op("+"), _number("1"), _op("-"), _J)),
    "sort": _sub(_name("x"), _paren(_J)),
    "cumulative-mean": _row(_frac(_number("1"), _J), _below(_SUM, _UP_TO_J), _X_K),
    "shift": _sub(_name("x"), _row(_J, _op("-"), _number("1"))),
    "running-max": _row(_below(_MAX, _UP_TO_J), _X_K),
}  # fmt: skip
