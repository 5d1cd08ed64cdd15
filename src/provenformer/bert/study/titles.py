"""What metrics and tasks are called in tables and figures."""

NAMES = {
    "_accuracy": "",  # what is in percent and says nothing else
    "mask_token": "[MASK]",
    "masked": "masked words",
    "next": "next sentence",
    "exact_match": "EM",
    "f1": "F1",
    "snli": "SNLI",
    "mnli": "MNLI",
    "squad": "SQuAD",
}


def title_of(name: str) -> str:
    """As a reader would write it: mnli_accuracy -> MNLI, squad_exact_match -> SQuAD EM."""
    for plain, proper in NAMES.items():
        name = name.replace(plain, proper)
    return name.replace("_", " ")
