"""Is it a contextual mapping (Definition 5.1)? A measure for real models, layer by layer; needs `provenformer[contextual]`.

contextual.measure("folder of a model", sentences)     # docs/contextual.md
"""

from provenformer.base.extras import extra

with extra("contextual", "provenformer.contextual"):
    from provenformer.contextual.layers import LayerMeasure, Quantile
    from provenformer.contextual.line import Line, best_line, check_line
    from provenformer.contextual.measure import MODES, Measured, Measurement, measure
    from provenformer.contextual.probe import Probe, ProbeCallback
    from provenformer.contextual.reach import Reach, TwoSentences, reach, two_sentences
    from provenformer.contextual.senses import Occurrence, SenseLayer, Senses, read_senses, senses

__all__ = [
    "MODES",
    "LayerMeasure",
    "Line",
    "Measured",
    "Measurement",
    "Occurrence",
    "Probe",
    "ProbeCallback",
    "Quantile",
    "Reach",
    "SenseLayer",
    "Senses",
    "TwoSentences",
    "best_line",
    "check_line",
    "measure",
    "reach",
    "read_senses",
    "senses",
    "two_sentences",
]
