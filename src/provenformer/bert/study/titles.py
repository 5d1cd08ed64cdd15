"""What metrics and tasks are called in tables and figures."""

PROPER_NAMES = {
    "mask_token": "[MASK]",
    "next": "next sentence",
    "snli": "SNLI",
    "mnli": "MNLI",
    "squad": "SQuAD",
    "f1": "F1",
}


def title_of(name: str) -> str:
    """As a reader would write it: squad_exact_match -> SQuAD exact match."""
    for plain, proper in PROPER_NAMES.items():
        name = name.replace(plain, proper)
    return name.replace("_", " ")
