"""The page for circuits in a real browser: its numbers are the library's, it follows the hand, and it fits."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette", reason="the explorer needs the extra 'explore'")
pytest.importorskip("selenium", reason="the browser tests need selenium")
from browser import Page, Server
from selenium.webdriver import ActionChains, Keys

import provenformer as pf


@cache
def compiled(name: str, n: int = 8, d: int = 1) -> pf.CompiledCircuit:
    return pf.compile(pf.targets.get(name, d, n), tolerance=1e-3, norm_order=np.inf, construction="circuit")


def inputs(page: Page) -> np.ndarray:
    """The input as the page has it, (1, n)."""
    code = "return [...document.querySelectorAll('#circuit-input .number')].map(e => e.getAttribute('aria-valuenow'))"
    return np.array([[float(v) for v in page.script(code)]])


def opened(page: Page) -> None:
    page.open("circuits")
    page.wait(lambda: page.all("#circuit-graph svg"))
    page.settle()


def choose(page: Page, **fields: str) -> None:
    for name, value in fields.items():
        field = page.find(f"#cf-{name}")
        if field.tag_name == "select":
            field.find_element("css selector", f"option[value='{value}']").click()
        else:
            field.send_keys(Keys.CONTROL, "a")
            field.send_keys(value)
    page.find("#circuit-build").click()
    page.wait(lambda: page.text("#circuit-state").startswith("Compiled"))
    page.settle()


def agrees(page: Page, c: pf.CompiledCircuit) -> None:
    x = inputs(page)
    assert page.numbers("#circuit-verdict") == [float(np.abs(c.network(x) - c.target(x)).max())]
    assert len(page.all("#circuit-nodes tbody tr")) == min(60, len(c.circuit.nodes))


def test_the_first_circuit(page: Page) -> None:
    opened(page)
    c = compiled("softmax-mean")
    assert page.numbers("#circuit-bound") == [c.certificate.bound]
    assert page.numbers("#circuit-terms td:last-child") == list(c.certificate.terms.values())
    agrees(page, c)
    assert len(page.all("#circuit-graph g.box")) == 3
    assert len(page.all("#circuit-patterns canvas")) == 1
    seen = page.script(
        "const c = document.querySelector('#circuit-patterns canvas'); "
        "return [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data].filter((_, i) => i % 4 === 3)"
    )
    weights = c.attention(inputs(page))[0][0]
    shares = np.array(seen).reshape(8, 8) / max(seen)
    assert np.abs(shares - weights / weights.max()).max() < 0.02


def test_keys_and_dragging_move_everything(page: Page) -> None:
    opened(page)
    choose(page, target="scaled-mean")
    c = compiled("scaled-mean")
    before, gauges = inputs(page), page.numbers("#circuit-graph .gauge")
    dot = page.all("#circuit-input .number")[2]
    dot.send_keys(Keys.ARROW_UP)
    page.settle()
    assert inputs(page)[0, 2] == pytest.approx(before[0, 2] + 0.01)
    agrees(page, c)
    assert page.numbers("#circuit-graph .gauge") != gauges
    circle = dot.find_element("css selector", "circle")
    ActionChains(page.driver).click_and_hold(circle).move_by_offset(0, -20).move_by_offset(0, -150).release().perform()
    page.settle()
    assert inputs(page)[0, 2] == 1.0
    agrees(page, c)
    assert all(0 <= share <= 1 for share in page.numbers("#circuit-graph .gauge"))


def test_a_box_shows_its_own_values(page: Page) -> None:
    opened(page)
    choose(page, target="sort", seq_len="16")
    assert len(page.all("#circuit-graph g.blocks")) == 1
    rows = len(page.all("#circuit-nodes tbody tr"))
    box = page.all("#circuit-graph g.box")[1]
    box.send_keys(Keys.ENTER)
    assert page.script("return document.querySelector('#circuit-nodes td').textContent") == "v1"
    assert len(page.all("#circuit-nodes tbody tr")) == 1
    box.send_keys(Keys.ENTER)
    assert len(page.all("#circuit-nodes tbody tr")) == rows


def test_bad_input_and_changed_settings_are_said(page: Page) -> None:
    opened(page)
    field = page.find("#cf-seq_len")
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys("1000")
    assert "Below is still: softmax-mean, d = 1, n = 8" in page.text("#circuit-stale")
    page.find("#circuit-build").click()
    page.wait(lambda: "from 2 to 64" in page.text("#circuit-state"))
    assert field.get_attribute("aria-invalid") == "true"
    page.errors()  # the browser logs every answer with code 400


def test_several_rows_and_a_move_is_quick(page: Page) -> None:
    opened(page)
    choose(page, target="softmax-mean", token_dim="2", seq_len="32")
    assert len(page.all("#circuit-input .number")) == 64
    dot = page.all("#circuit-input .number")[40]
    times = []
    for _ in range(5):
        start = time.perf_counter()
        dot.send_keys(Keys.ARROW_DOWN)
        page.settle()
        times.append(time.perf_counter() - start)
    assert min(times) < 1.0  # on a busy machine; alone it is a few hundredths of a second


def test_a_saved_network_is_opened(tmp_path: Path, driver: Any) -> None:
    c = compiled("cumulative-mean", 12)
    c.save(tmp_path / "net")
    alone = Server.start(str(tmp_path / "net"))
    try:
        page = Page(driver, alone.url)
        opened(page)
        assert page.text("#cf-target option") == "opened: cumulative-mean"
        assert not page.find("#cf-seq_len").is_displayed()
        assert page.numbers("#circuit-bound") == [c.certificate.bound]
        agrees(page, c)
        assert page.errors() == []
    finally:
        alone.stop()


def test_a_program_on_tokens_is_followed_by_name(tmp_path: Path, driver: Any) -> None:
    c = pf.compile_tokens(pf.programs.reverse, "abcd", 8)
    c.save(tmp_path / "net")
    alone = Server.start(str(tmp_path / "net"), "--target", "reverse")
    try:
        page = Page(driver, alone.url)
        opened(page)
        assert page.numbers("#circuit-bound") == [c.certificate.bound]
        assert "exact on all 4^8 sequences" in page.text("#circuit-bound")

        def shown(where: str) -> str:
            code = (
                f"return [...document.querySelectorAll('#circuit-{where} text.token')].map(e => e.textContent).join('')"
            )
            return str(page.script(code))

        def agree() -> None:
            tokens = shown("input")
            assert tokens == "".join("abcd"[int(v)] for v in inputs(page)[0])
            assert shown("output") == "".join(c(tokens)) == tokens[::-1]

        agree()
        before = inputs(page)
        dot = page.all("#circuit-input .number")[2]
        dot.send_keys(Keys.ARROW_UP if before[0, 2] < 3 else Keys.ARROW_DOWN)
        page.settle()
        assert abs(inputs(page)[0, 2] - before[0, 2]) == 1
        agree()
        assert "looks at the mirrored token" in page.text("#circuit-patterns figcaption")
        names = page.script(
            "return [...document.querySelectorAll('#circuit-patterns .keys i')].map(e => e.textContent)"
        )
        assert "".join(names) == shown("input")
        choose(page, target="tokens:induction", vocab_size="4", seq_len="6")
        assert not page.find("#cf-tolerance").is_displayed()
        assert "exact on all 4^6 sequences" in page.text("#circuit-bound")
        assert page.errors() == []
    finally:
        alone.stop()
