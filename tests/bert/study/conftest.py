"""A small study, run once, and copies of it that a test may change."""

import dataclasses
import shutil
from pathlib import Path

import pytest
from study_cases import STUDY, invoke

from provenformer.bert.data.prepare import PrepareSettings, prepare
from provenformer.bert.data.sample import write_sample
from provenformer.bert.settings import read_settings
from provenformer.bert.study import StudyData, StudySettings


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> StudyData:
    folder = tmp_path_factory.mktemp("sample")
    write_sample(folder)
    small = PrepareSettings(seq_len=32, vocabulary_size=300)
    prepare([folder / "text"], folder / "data", small)
    prepare([folder / "valid"], folder / "held-out", small, folder / "data/vocab.txt")
    prepare([folder / "text/more-people.txt"], folder / "other", small, folder / "data/vocab.txt")
    prepare([folder / "text"], folder / "short", dataclasses.replace(small, seq_len=16), folder / "data/vocab.txt")
    files = {
        "mnli": (folder / "mnli-train.jsonl", folder / "mnli-dev.jsonl"),
        "squad": (folder / "squad-train.json", folder / "squad-dev.json"),
    }
    return StudyData(folder / "data", folder / "held-out", folder / "other", folder / "short", files)


@pytest.fixture
def settings(tmp_path: Path) -> StudySettings:
    (tmp_path / "study.toml").write_text(STUDY)
    return read_settings(StudySettings, tmp_path / "study.toml")


@pytest.fixture(scope="session")
def done(data: StudyData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs and results of the whole study, and what was said, by the command line."""
    folder = tmp_path_factory.mktemp("done")
    (folder / "study.toml").write_text(STUDY)
    where = ["--data", data.train, "--valid", data.valid, "--tuning", data.tuning, "--short", data.short]
    kept = ["--runs", folder / "runs", "--results", folder / "results"]
    (folder / "said").write_text(invoke("study", folder / "study.toml", *where, *kept, "--mnli", *data.tasks["mnli"]))
    return folder


@pytest.fixture
def results(done: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(done / "results", tmp_path / "results"))
