"""Studies: a search for recipes, runs of several models and seeds, their table and figures."""

from provenformer.bert.study.comparisons import comparison_table
from provenformer.bert.study.cost import cost_table
from provenformer.bert.study.jobs import run_jobs
from provenformer.bert.study.recipes import recipe_table
from provenformer.bert.study.run import run_study
from provenformer.bert.study.settings import StudyData, StudySettings
from provenformer.bert.study.table import Estimate, estimate, summary, table

__all__ = [
    "Estimate",
    "StudyData",
    "StudySettings",
    "comparison_table",
    "cost_table",
    "estimate",
    "recipe_table",
    "run_jobs",
    "run_study",
    "summary",
    "table",
]
