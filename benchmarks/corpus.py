"""The sample corpus as examples of any length and vocabulary size, for benchmarks of training."""

from pathlib import Path

from provenformer.bert.data.documents import read_documents, text_files
from provenformer.bert.data.examples import Examples
from provenformer.bert.data.prepare import PrepareSettings, prepare
from provenformer.bert.data.sample import write_sample
from provenformer.bert.data.vocabulary import Vocabulary, train_vocabulary

JOINED = 40  # documents of the sample in one of these, so that examples of 512 positions are full


def sample_examples(folder: Path, seq_len: int, vocabulary_size: int) -> Examples:
    """The text has few words: the vocabulary is filled up with entries that it does not use."""
    write_sample(folder)
    documents = ["\n".join(document) for document in read_documents(text_files([folder / "text"]))]
    long = ["\n".join(documents[at : at + JOINED]) for at in range(0, len(documents), JOINED)]
    (folder / "long.txt").write_text("\n\n".join(long))
    few = train_vocabulary(lambda: documents, 400)
    unused = (f"[unused{index}]" for index in range(vocabulary_size - len(few)))
    Vocabulary([*few.pieces, *unused]).save(folder / "vocab.txt")
    prepare([folder / "long.txt"], folder / "data", PrepareSettings(seq_len=seq_len), folder / "vocab.txt")
    return Examples(folder / "data")
