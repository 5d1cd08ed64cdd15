"""Do SQuAD's answers survive the cut into windows? `python -m benchmarks.squad_windows DATA VOCABULARY`."""

import sys
from pathlib import Path

import numpy as np

from provenformer.bert.data.squad import question_windows, read_squad
from provenformer.bert.data.vocabulary import Vocabulary

SEQ_LEN, STRIDE = 384, 128


def main(data: Path, vocabulary: Path) -> None:
    questions = read_squad(data)
    found = question_windows(questions, Vocabulary.load(vocabulary), SEQ_LEN, STRIDE)
    held = np.flatnonzero(found.end)  # windows with the whole first answer
    exact = 0
    for row in held:
        question = questions[found.question[row]]
        text = question.context[found.spans[row, found.start[row], 0] : found.spans[row, found.end[row], 1]]
        exact += text == question.answers[0][1]
    print(f"{len(questions):,} questions in {len(found.question):,} windows of {SEQ_LEN}, stride {STRIDE}")
    print(f"first answer whole in a window: {len(set(found.question[held])):,} questions, {len(held):,} windows")
    print(f"windows that give it back character for character: {exact:,}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
