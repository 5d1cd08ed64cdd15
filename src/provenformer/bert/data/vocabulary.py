"""The WordPiece vocabulary: trained from text or loaded from a file with one entry a line."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import WordPieceTrainer

from provenformer.base.errors import ProvenformerError
from provenformer.base.files import atomic_path

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CONTINUATION = "##"
BATCH = 2000  # sentences that the tokenizer takes at once


class Vocabulary:
    """WordPieces in the order of their ids, and the tokenizer that they define."""

    def __init__(self, pieces: Iterable[str], lowercase: bool = True) -> None:
        self.pieces = tuple(pieces)
        self.lowercase = lowercase
        ids = {piece: index for index, piece in enumerate(self.pieces)}
        missing = [piece for piece in SPECIAL if piece not in ids]
        if missing:
            raise ProvenformerError(f"the vocabulary lacks {' '.join(missing)}; add one line for each")
        if "" in ids:
            raise ProvenformerError(f"line {ids[''] + 1} of the vocabulary is empty; remove it")
        if len(ids) < len(self.pieces):
            raise ProvenformerError(f"{len(self.pieces) - len(ids)} entries of the vocabulary occur twice; remove them")
        self.pad, self.unknown, self.cls, self.sep, self.mask = (ids[piece] for piece in SPECIAL)
        self.tokenizer = Tokenizer(WordPiece(ids, unk_token="[UNK]"))
        self.tokenizer.normalizer = BertNormalizer(lowercase=lowercase)
        self.tokenizer.pre_tokenizer = BertPreTokenizer()
        self.tokenizer.post_processor = TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[("[CLS]", self.cls), ("[SEP]", self.sep)],
        )

    @classmethod
    def load(cls, path: Path, lowercase: bool = True) -> "Vocabulary":
        """From a file like BERT's vocab.txt."""
        try:
            return cls(path.read_text(encoding="utf-8").splitlines(), lowercase)
        except ProvenformerError as error:
            raise ProvenformerError(f"{path}: {error}") from None
        except (OSError, UnicodeDecodeError) as error:
            raise ProvenformerError(
                f"{path} is not a vocabulary ({error}); give a text file, one entry a line"
            ) from None

    def save(self, path: Path) -> None:
        """As a file that `load` and transformers read."""
        with atomic_path(path) as temporary:
            temporary.write_text("".join(f"{piece}\n" for piece in self.pieces), encoding="utf-8")

    def __len__(self) -> int:
        return len(self.pieces)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    @cached_property
    def fingerprint(self) -> str:
        """Tells vocabularies apart: data and model must have been made with the same."""
        return hashlib.sha256("\n".join((*self.pieces, str(self.lowercase))).encode()).hexdigest()[:16]

    @cached_property
    def continues_word(self) -> NDArray[np.bool_]:
        """(vocabulary,): whether a piece goes on with the word of the piece before it."""
        return np.array([piece.startswith(CONTINUATION) for piece in self.pieces])

    @cached_property
    def ordinary_ids(self) -> NDArray[np.intp]:
        """Ids that a random replacement is drawn from: no special piece and none that BERT's file keeps unused."""
        words = [i for i, piece in enumerate(self.pieces) if piece not in SPECIAL and not piece.startswith("[unused")]
        return np.array(words, np.intp)

    def encode(self, sentences: Iterable[str]) -> Iterator[list[int]]:
        """Ids of each sentence, without [CLS] and [SEP]; streams."""
        for batch in batches(sentences):
            for encoding in self.tokenizer.encode_batch_fast(batch, add_special_tokens=False):
                yield encoding.ids

    def encode_pairs(self, pairs: list[tuple[str, str]], length: int, stride: int | None = None) -> list[Encoding]:
        """[CLS] first [SEP] second [SEP], at most `length` long.

        With a stride only the second text is cut, into overlapping windows (`Encoding.overflowing`); without one the
        longer text loses its end.
        """
        if stride is None:
            self.tokenizer.enable_truncation(length, strategy="longest_first")
        else:
            self.tokenizer.enable_truncation(length, stride=stride, strategy="only_second")
        try:
            return list(self.tokenizer.encode_batch(pairs))
        finally:
            self.tokenizer.no_truncation()


def batches(sentences: Iterable[str]) -> Iterator[list[str]]:
    """Lists of `BATCH` sentences."""
    iterator = iter(sentences)
    while batch := list(islice(iterator, BATCH)):
        yield batch


def train_vocabulary(sentences: Callable[[], Iterable[str]], size: int, lowercase: bool = True) -> Vocabulary:
    """A vocabulary of at most `size` entries; `sentences()` is called twice and streamed each time."""
    blank = Vocabulary(SPECIAL, lowercase).tokenizer
    alphabet: set[str] = set()
    for batch in batches(sentences()):
        alphabet.update(blank.normalizer.normalize_str("\n".join(batch)))
    characters = sorted(character for character in alphabet if not character.isspace())
    # The trainer numbers the characters inside words in the order of a hash map. Given in advance, in a fixed order,
    # they make the vocabulary the same in every run.
    start = [*SPECIAL, *characters, *(CONTINUATION + character for character in characters)]
    if len(start) > size:
        needed = f"{len(characters)} characters need {len(start)} entries"
        raise ProvenformerError(f"vocabulary of {size} is too small: {needed}; ask for more with --vocabulary-size")
    trainer = WordPieceTrainer(
        vocab_size=size, special_tokens=start, show_progress=False, continuing_subword_prefix=CONTINUATION
    )
    blank.train_from_iterator(batches(sentences()), trainer)
    return Vocabulary(sorted(blank.get_vocab(), key=blank.get_vocab().__getitem__), lowercase)
