"""Hugging Face datasets as sources: files, folders of save_to_disk, a hub and its cache; sentences of running text."""

import builtins
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import stand_in_hub

from provenformer.base.errors import ProvenformerError
from provenformer.bert.data.examples import Examples
from provenformer.bert.data.mnli import SentencePair, read_mnli
from provenformer.bert.data.prepare import PrepareSettings, prepare
from provenformer.bert.data.records import Records
from provenformer.bert.data.sentences import sentences
from provenformer.bert.data.sources import find_sources
from provenformer.bert.data.squad import Question, read_squad
from provenformer.bert.training.finetune import file_fingerprint

datasets = pytest.importorskip("datasets")
datasets.disable_progress_bars()

STORIES = [
    f"Anna has {i} hens. She lives in town {i}.\nThe hens are old, e.g. {i} years. Nobody knows!" for i in range(40)
]
SMALL = PrepareSettings(seq_len=32, vocabulary_size=120, shard_characters=500)
PAIRS = [SentencePair("A b.", "C d.", 0), SentencePair("E f.", "G h.", 2)]
QUESTION = Question("q", "Who?", "Anna is here.", ((0, "Anna"), (0, "Anna is")))


def stories(column: str = "text") -> Any:
    return datasets.Dataset.from_dict({column: [*STORIES[:7], "", " \u200d\n", *STORIES[7:]], "id": list(range(42))})


def mnli(names: tuple[str, ...] = ("entailment", "neutral", "contradiction")) -> Any:
    labels = [names.index("entailment"), -1, names.index("contradiction")]
    kinds = {"premise": datasets.Value("string"), "hypothesis": datasets.Value("string")}
    return datasets.Dataset.from_dict(
        {"premise": ["A b.", "x", "E f."], "hypothesis": ["C d.", "y", "G h."], "label": labels},
        features=datasets.Features({**kinds, "label": datasets.ClassLabel(names=list(names))}),
    )


def squad() -> Any:
    answers = {"text": ["Anna", "Anna is"], "answer_start": [0, 0]}
    record = {"id": "q", "title": "t", "question": "Who?", "context": "Anna is here.", "answers": answers}
    return datasets.Dataset.from_list([record])


def forms(table: Any, folder: Path) -> list[Path]:
    """The same table in every form that is read."""
    table.to_parquet(folder / "a.parquet")
    table.to_json(folder / "a.jsonl")
    table.save_to_disk(folder / "one")
    datasets.DatasetDict(train=table, dev=table.select([0])).save_to_disk(folder / "splits")
    shutil.copy(next((folder / "one").glob("*.arrow")), folder / "a.arrow")
    (folder / "several").mkdir()
    table.to_parquet(folder / "several/train-00000-of-00001.parquet")
    names = ("a.parquet", "a.arrow", "one")
    written = [f"hf:{folder}/splits,split=train", f"hf:{folder}/several", f"hf:{folder}/a.jsonl"]
    return [*(folder / name for name in names), *map(Path, written)]


def test_every_form_gives_the_same_examples(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("\n\n".join("\n".join(sentences(story)) for story in STORIES))
    prepare([tmp_path / "text.txt"], tmp_path / "expected", SMALL)
    expected = (tmp_path / "expected/manifest.json").read_bytes()
    assert len(json.loads(expected)["shards"]) > 2
    for index, source in enumerate([*forms(stories(), tmp_path), tmp_path / "a.jsonl"]):
        prepare([source], tmp_path / f"{index}", SMALL)
        assert (tmp_path / f"{index}/manifest.json").read_bytes() == expected, source
    assert len(Examples(tmp_path / "0")) == json.loads(expected)["examples"]


def test_a_stopped_run_goes_on_and_other_data_is_refused(tmp_path: Path) -> None:
    source, data = tmp_path / "a.parquet", tmp_path / "data"
    stories("body").to_parquet(source)
    named = [Path(f"hf:{source},column=body")]
    prepare(named, data, SMALL)
    whole = {path.name: path.read_bytes() for path in data.iterdir()}
    (data / "manifest.json").rename(data / "unfinished.json")
    (data / "shard-00001.npy").unlink()
    kept = (data / "shard-00000.npy").stat().st_mtime_ns
    prepare(named, data, SMALL)
    assert {path.name: path.read_bytes() for path in data.iterdir()} == whole
    assert (data / "shard-00000.npy").stat().st_mtime_ns == kept
    stories("body").select(range(1, 42)).to_parquet(source)
    with pytest.raises(ProvenformerError, match="begun with other settings or files"):
        prepare(named, data, SMALL)


def test_records_are_streamed(tmp_path: Path) -> None:
    """The first document comes without the others: a later part of the file is damaged and not noticed yet."""
    source = tmp_path / "a.jsonl"
    source.write_text('{"text": "One. Two."}\n' * 3 + "not JSON\n")
    documents = find_sources([source])[0].documents()
    assert next(documents) == ["One.", "Two."]
    with pytest.raises(ProvenformerError, match="line 4 is not JSON"):
        list(documents)


def test_a_column_that_is_not_text(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text('{"text": "One. Two."}\n{"text": null}\n{"text": 3}\n')
    with pytest.raises(ProvenformerError, match=r"record 3: 'text' is of type int, not text; add ,column=NAME to hf:"):
        list(find_sources([source])[0].documents())


def test_mnli_and_squad_in_every_form(tmp_path: Path) -> None:
    for folder, table in (("mnli", mnli()), ("squad", squad())):
        (tmp_path / folder).mkdir()
        for source in forms(table, tmp_path / folder):
            if folder == "mnli":
                assert read_mnli(source) == PAIRS, source
            else:
                assert read_squad(source) == [QUESTION], source
            assert len(file_fingerprint(source)) == 16
    mnli(("contradiction", "entailment", "neutral")).to_parquet(tmp_path / "other.parquet")
    assert read_mnli(tmp_path / "other.parquet") == PAIRS  # by the names of the labels, not their numbers


def test_the_fingerprint_is_of_the_bytes_and_of_what_is_asked(tmp_path: Path) -> None:
    forms(stories(), tmp_path)
    names = ["splits,split=train", "splits,split=dev", "a.parquet", "a.parquet,column=id"]
    marks = [file_fingerprint(Path(f"hf:{tmp_path}/{name}")) for name in names]
    assert len(set(marks)) == len(names)
    part = next((tmp_path / "splits/train").glob("*.arrow"))
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    assert file_fingerprint(Path(f"hf:{tmp_path}/splits,split=train")) != marks[0]


def test_errors_are_one_line_each(tmp_path: Path) -> None:
    forms(stories("body"), tmp_path)
    (tmp_path / "bad.parquet").write_bytes(b"not a table")
    (tmp_path / "cut.arrow").write_bytes((tmp_path / "a.arrow").read_bytes()[:-2000])
    datasets.Dataset.from_dict({"text": ["", "\n"]}).to_parquet(tmp_path / "empty.parquet")
    for source, message in {
        "a.parquet": "has no column 'text', it has body, id; add ,column=NAME",
        "splits": "has the splits train, dev; add one",
        "splits,split=test": "has no split 'test'; choose among train, dev",
        "a.parquet,part=1": "'part=1' is not an option with a value; options are config, split, column, revision",
        "a.parquet,split": "'split' is not an option with a value",
        "gone.parquet": "gone.parquet does not exist; check the path",
        "bad.parquet": "bad.parquet cannot be read",
        "cut.arrow": "cut.arrow cannot be read",
        "empty.parquet": "holds no document",
    }.items():
        with pytest.raises(ProvenformerError, match=message) as told:
            list(find_sources([Path(f"hf:{tmp_path}/{source}")])[0].documents())
        assert "\n" not in str(told.value)
    with pytest.raises(ProvenformerError, match="no field label or gold_label, it has body, id"):
        read_mnli(tmp_path / "a.parquet")
    with pytest.raises(ProvenformerError, match="no column 'question', it has body, id"):
        read_squad(tmp_path / "a.parquet")


def test_the_package_may_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stories().to_parquet(tmp_path / "a.parquet")
    original = builtins.__import__

    def without_datasets(name: str, *rest: Any) -> Any:
        if name == "datasets":
            raise ModuleNotFoundError(name=name)
        return original(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_datasets)
    with pytest.raises(
        ProvenformerError, match=r"needs datasets, which is not installed; pip install .provenformer\[hub\]"
    ):
        next(Records.parse(tmp_path / "a.parquet").read())


IN_ANOTHER_PROCESS = """
import json, sys
from pathlib import Path
from provenformer.bert.data.mnli import read_mnli
from provenformer.bert.data.squad import read_squad
from provenformer.bert.data.sources import find_sources
from provenformer.bert.training.finetune import file_fingerprint
from provenformer.base.errors import ProvenformerError

for reader, name in json.loads(sys.argv[1]):
    try:
        print(json.dumps(repr({
            "mnli": read_mnli, "squad": read_squad, "fingerprint": file_fingerprint,
            "documents": lambda path: list(find_sources([path])[0].documents())[:1],
        }[reader](Path(name)))))
    except ProvenformerError as error:
        print(json.dumps(f"error: {error}"))
"""


def asked(questions: list[tuple[str, str]], **environment: str) -> list[str]:
    """The answers of a process of its own: where the hub is is settled when its package is imported."""
    command = [sys.executable, "-c", IN_ANOTHER_PROCESS, json.dumps(questions)]
    said = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in said.splitlines()]


@pytest.mark.slow
def test_a_hub(tmp_path: Path) -> None:
    """By name over HTTP, then from the cache that `datasets` keeps."""
    tables = {
        "nyu-mll/multi_nli": ("train", mnli()),
        "rajpurkar/squad": ("validation", squad()),
        "wikimedia/wikipedia": ("train", stories()),
    }
    for name, (split, table) in tables.items():
        config = "20231101.en" if name.endswith("wikipedia") else "default"
        folder = tmp_path / "hub" / name / config
        folder.mkdir(parents=True)
        table.to_parquet(folder / f"{split}-00000-of-00001.parquet")
        files = f"  data_files:\n  - split: {split}\n    path: {config}/{split}-*\n"
        (folder.parent / "README.md").write_text(f"---\nconfigs:\n- config_name: {config}\n{files}---\n")
    server = stand_in_hub.start(tmp_path / "hub")
    there = {"HF_ENDPOINT": f"http://localhost:{server.server_port}", "HF_HUB_OFFLINE": "0"}
    home = {"HF_HOME": str(tmp_path / "home")}
    pairs, mark = ("mnli", "hf:nyu-mll/multi_nli,split=train"), ("fingerprint", "hf:nyu-mll/multi_nli,split=train")
    found = asked(
        [
            pairs,
            mark,
            ("squad", "hf:rajpurkar/squad,split=validation"),
            ("documents", "hf:wikimedia/wikipedia,config=20231101.en,split=train"),
            ("documents", "hf:wikimedia/wikipedia,config=20231101.xx"),
            ("mnli", "hf:nyu-mll/multi_nli,split=validation_matched"),
            ("mnli", "hf:nyu-mll/nothing"),
        ],
        **there,
        **home,
    )
    assert found[0] == repr(PAIRS)
    assert found[2:4] == [repr([QUESTION]), repr([sentences(STORIES[0])])]
    assert "'20231101.xx' not found. Available: ['20231101.en']" in found[4]
    assert found[5] == "error: nyu-mll/multi_nli has no split 'validation_matched'; choose among train"
    assert "nyu-mll/nothing cannot be read (404" in found[6]
    server.shutdown()
    server.server_close()

    cache = tmp_path / "home/datasets/nyu-mll___multi_nli/default/0.0.0" / stand_in_hub.COMMIT
    built = datasets.load_dataset(
        "parquet",
        data_files=str(tmp_path / "hub/nyu-mll/multi_nli/default/*"),
        cache_dir=str(tmp_path / "built"),
    )
    cache.mkdir(parents=True)
    for file in Path(built["train"].cache_files[0]["filename"]).parent.iterdir():
        shutil.copy(file, cache / file.name.replace("parquet-", "multi_nli-"))
    offline = asked([pairs, mark, ("squad", "hf:rajpurkar/squad")], HF_HUB_OFFLINE="1", **home)
    assert offline[:2] == found[:2]
    assert offline[2].startswith("error: rajpurkar/squad cannot be read (Couldn't reach 'rajpurkar/squad' on the Hub")


def test_a_hub_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://localhost:1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    message = r"cannot be read \(.*[Cc]onnect.*\); check name, options and network, or name a local file or folder$"
    with pytest.raises(ProvenformerError, match=f"nyu-mll/multi_nli {message}"):
        file_fingerprint(Path("hf:nyu-mll/multi_nli,split=train"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ('He said: "Go." She went.', ['He said: "Go."', "She went."]),
        (
            "Dr. J. Smith of St. Ives, e.g. in Fig. 3, has 3.5 hens.",
            ["Dr. J. Smith of St. Ives, e.g. in Fig. 3, has 3.5 hens."],
        ),
        ("It rains ... and rains. 20 days.", ["It rains ... and rains.", "20 days."]),
        ("A title\n\nA  line\twith spaces. \n", ["A title", "A line with spaces."]),
        ("\u6211\u662f\u3002\u4f60\u662f\u3002", ["\u6211\u662f\u3002", "\u4f60\u662f\u3002"]),
        ("", []),
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected
