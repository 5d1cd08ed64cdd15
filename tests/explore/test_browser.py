"""The explorer in a real browser: every page, dragging, keys, playing, knobs, bad input, and a server that goes away.

Numbers on the page are compared with the library's. Needs Debian's chromium and chromium-driver: `make test-browser`.
"""

from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette", reason="the explorer needs the extra 'explore'")
pytest.importorskip("selenium", reason="the browser tests need selenium")
from browser import Page, Server
from cases import thin
from selenium.webdriver import ActionChains, Keys

import provenformer as pf
from provenformer.explore.building import with_temperature

PAGES = ["circuits", "tables", "theorem-2", "theorem-3", "repeats", "infinite"]
SMALL_TEXT = """return [...document.querySelectorAll('main *')].filter(e => e.offsetParent !== null || e.ownerSVGElement)
    .filter(e => [...e.childNodes].some(c => c.nodeType === 3 && c.data.trim()))
    .filter(e => !e.closest('math') && parseFloat(getComputedStyle(e).fontSize) < 13).map(e => e.outerHTML.slice(0, 80))"""


@cache
def compiled(name: str = "softmax-mean", cells: int = 6, construction: Any = "sum") -> pf.Compiled:
    return pf.compile(pf.targets.get(name, 1, 3), cells_per_axis=cells, construction=construction)


def build(page: Page, construction: str, cells: int) -> pf.Compiled:
    """Another network on the page, and the library's."""
    page.fill("construction", construction)
    page.fill("cells", str(cells))
    page.find("#compile").click()
    c = compiled(cells=cells, construction=construction)
    page.wait(lambda: page.numbers("#bound") == [c.certificate.bound])
    return c


def test_the_first_page_is_a_circuit_and_is_there_at_once(page: Page) -> None:
    page.open("")
    assert page.find("#page-circuits").is_displayed()
    c = pf.compile(pf.targets.get("softmax-mean", 1, 8), tolerance=1e-3, norm_order=np.inf)
    assert page.numbers("#circuit-bound") == [c.certificate.bound]
    assert page.script("return performance.getEntriesByType('resource').filter(e => e.name.includes('/api/'))") == []


def test_the_table_page_shows_the_default_network(page: Page) -> None:
    c = compiled()
    assert c.certificate.bound < 0.06
    assert page.text("#verdict").count("certificate does not") == 0
    assert [item.get_attribute("class") for item in page.all("#verdict li")] == ["good", "", "good"]
    assert page.numbers("#bound") == [c.certificate.bound]
    assert page.numbers("#term-table td:last-child") == list(c.certificate.terms.values())
    widths = [float(str(part.get_attribute("width"))) for part in page.all("#terms rect")]
    parts = np.array(list(c.certificate.contributions().values()))
    np.testing.assert_allclose(np.array(widths) / sum(widths), parts / c.certificate.bound, atol=1e-3)
    x = page.tokens()
    np.testing.assert_array_equal(page.columns("#outputs", 2), c.target(x))
    np.testing.assert_array_equal(page.columns("#outputs", 3), c.modified(x))
    assert page.text("#plan dd[data-name=blocks]") == str(c.plan.blocks)
    assert (
        page.script("return performance.getEntriesByType('resource').filter(e => !e.name.startsWith(location.origin))")
        == []
    )


def test_dragging_a_token_moves_everything(page: Page) -> None:
    before = page.tokens()
    ActionChains(page.driver).click_and_hold(page.token(0)).move_by_offset(40, 0).move_by_offset(
        35, 3
    ).release().perform()
    page.settle()
    x = page.tokens()
    assert x[0, 0] > before[0, 0] + 0.05
    np.testing.assert_array_equal(x[0, 1:], before[0, 1:])
    np.testing.assert_array_equal(page.columns("#outputs", 2), compiled().target(x))
    np.testing.assert_array_equal(page.columns("#outputs", 3), compiled().modified(x))
    assert page.driver.switch_to.active_element == page.token(0)


def test_arrow_keys_move_a_token_through_its_cells(page: Page) -> None:
    token = page.token(2)
    for key, step in ((Keys.ARROW_RIGHT, 0.01), (Keys.ARROW_LEFT, -0.01), (Keys.PAGE_UP, 0.1), (Keys.PAGE_DOWN, -0.1)):
        before = page.token_at(2)[0]
        token.send_keys(key)
        assert page.token_at(2)[0] == pytest.approx(before + step, abs=1e-4)
    assert token.get_attribute("role") == "slider"
    assert float(str(token.get_attribute("aria-valuenow"))) == page.token_at(2)[0]
    token.send_keys(Keys.HOME)  # into the cell of token 1, which the sum construction does not mind
    for _ in range(5):
        token.send_keys(Keys.ARROW_LEFT)  # out of the box
    page.settle()
    assert page.text("#names tbody tr:nth-child(3) td:nth-child(3)") == "outside"
    assert page.columns("#outputs", 3).tolist() == [[0.0, 0.0, 0.0]]
    assert page.columns("#outputs", 2).tolist() == [[0.0, 0.0, 0.0]]
    assert "f counts as 0 there" in page.text("#verdict [data-name=alone]")


@pytest.mark.parametrize("mode", ["hardmax", "softmax"])
def test_the_verdict_agrees_with_the_cards_where_the_paper_loses_a_cube(page: Page, mode: str) -> None:
    build(page, "paper", 5)
    page.script(f"document.querySelector('input[value={mode}]').click()")
    page.settle()
    assert "Every token meets its bump" in page.text("#verdict")
    page.token(2).send_keys(Keys.HOME)  # into the cell of token 1
    page.settle()
    assert page.columns("#outputs", 3).tolist() == [[0.0, 0.0, 0.0]]
    assert page.text("#bumps").count("No bump waits") == 3
    assert "x₁ and x₃ share a cell" in page.text("#verdict .bad[data-name=alone]")
    assert not page.all("#verdict .good[data-name=missed]")
    assert "bump" not in "".join(item.text for item in page.all("#verdict .good"))


def test_a_certificate_beside_knobs_that_it_does_not_cover_says_so(page: Page) -> None:
    build(page, "paper", 5)
    page.script("document.querySelector('input[value=softmax]').click()")
    page.settle()
    assert page.all("#verdict .good[data-name=bound]")
    assert not page.text("#not-covered")
    page.slide("#k-temperature", 3)
    page.settle()
    assert page.all("#verdict .bad[data-name=bound]")
    assert "not about the network shown" in page.text("#not-covered")
    page.find("#reset-knobs").click()
    page.settle()
    assert page.all("#verdict .good[data-name=bound]")
    assert not page.text("#not-covered")


def test_steps_are_upright(page: Page) -> None:
    """Each jump of the staircase lies between two points that are closer than a pixel."""
    path = str(page.find("#slice path.network").get_attribute("d"))
    points = [tuple(float(v) for v in part.split(",")) for part in path.removeprefix("M").split("L")]
    jumps = [b[0] - a[0] for a, b in pairwise(points) if abs(a[1] - b[1]) > 2]
    assert len(jumps) == 5
    assert max(jumps) < 0.1


def test_after_a_failed_compile_the_old_network_is_marked(page: Page) -> None:
    page.fill("cells", "4000")
    page.find("#compile").click()
    page.wait(lambda: "could not be compiled" in page.text("#stale"))
    assert "softmax-mean, d = 1, n = 3, N = 6, sum" in page.text("#stale")
    assert page.script("return getComputedStyle(document.querySelector('#table-io')).opacity") == "0.5"
    page.fill("cells", "6")
    page.wait(lambda: not page.find("#stale").is_displayed())
    assert page.script("return getComputedStyle(document.querySelector('#table-io')).opacity") == "1"
    page.open("circuits")
    page.find("#cf-tolerance").send_keys("x")
    page.find("#circuit-build").click()
    page.wait(lambda: "could not be compiled" in page.text("#circuit-stale"))
    certificate = "return getComputedStyle(document.getElementById('circuit-bound').closest('.card')).opacity"
    assert float(page.script(certificate)) < 1  # of the old network, too
    page.errors()  # the browser's own note about a refused request


def test_a_link_brings_back_what_one_saw(page: Page) -> None:
    build(page, "paper", 5)
    page.script("document.querySelector('input[value=softmax]').click()")
    page.token(1).send_keys(Keys.PAGE_DOWN)
    page.slide("#k-temperature", 3)
    page.settle()
    seen = [page.text(name) for name in ("#verdict", "#outputs", "#names", "#bound")]
    link = page.address()
    page.open(link.removeprefix("#/"))
    page.wait(lambda: page.text("#verdict") == seen[0])
    assert [page.text(name) for name in ("#verdict", "#outputs", "#names", "#bound")] == seen
    for name, move in (("circuits", "#circuit-input .number"), ("theorem-2", "#t2-tokens .handle")):
        page.open(name)
        page.wait(lambda move: page.all(move), move)
        page.find(move).send_keys(Keys.PAGE_UP)
        page.settle()
        there = page.find(move).get_attribute("aria-valuetext")
        link = page.address()
        assert "x=" in link
        page.open(link.removeprefix("#/"))
        page.wait(lambda move: page.all(move), move)
        assert page.find(move).get_attribute("aria-valuetext") == there


def test_input_layers_and_output_are_on_one_screen(page: Page) -> None:
    """At 1280 x 900 all of them; on a phone the tokens come before the settings."""
    bottom = "return Math.max(...arguments[0].map(q => document.querySelector(q).getBoundingClientRect().bottom))"
    top = "return document.querySelector(arguments[0]).getBoundingClientRect().top"
    sees(page, 1280, 900, "light")
    page.open("tables")
    assert page.script(bottom, ["#tokens", "#slice", "#outputs", "#verdict", "#ids"]) <= 900
    page.open("circuits")
    assert page.script(bottom, ["#circuit-input", "#circuit-output", "#circuit-graph svg"]) <= 900
    sees(page, 390, 844, "light")
    for name, tokens, form in (("tables", "#tokens", "#settings"), ("circuits", "#circuit-input", "#circuit-form")):
        page.open(name)
        assert page.script(top, tokens) < page.script(top, form)


def test_layers_by_button_slider_stage_and_play(page: Page) -> None:
    c = compiled()
    x = page.tokens()
    steps = [s.floats()[0] for s in c.modified.trace(x[None], every="layer")]
    page.find("#first").click()
    assert page.text("#moment-text").startswith("Layer 0 of")
    assert page.numbers("#ids .dot") == x[0].tolist()
    page.find("#forward").click()
    page.find("#forward").click()
    assert page.text("#moment-text").startswith("Layer 2 of")
    page.all("#stages button")[2].click()
    assert "quantise" in page.text("#moment-text")
    page.find("#moment").send_keys(Keys.END)
    assert page.numbers("#ids .dot") == steps[-1][0].tolist()
    page.find("#moment").send_keys(Keys.HOME)
    page.find("#play").send_keys(Keys.ENTER)
    assert page.text("#play") == "Pause"
    page.wait(lambda: int(page.text("#moment-text").split()[1]) >= 2)  # a busy browser may be further already
    page.find("#play").send_keys(Keys.SPACE)
    assert page.text("#play") == "Play"
    # After the contextual map the ids are those of the library's network, which counts in 1/N instead of cells.
    c = build(page, "paper", 5)
    steps = [s.floats()[0] for s in c.modified.trace(page.tokens()[None], every="layer")]
    page.slide("#moment", 13)
    after = steps[12] * c.grid.cells_per_axis
    assert page.text("#moment-text").startswith("Layer 13 of")
    np.testing.assert_allclose(page.numbers("#ids .dot"), after[0], rtol=1e-12)


def test_softmax_and_its_knobs(page: Page) -> None:
    c = build(page, "paper", 5)
    x = page.tokens()
    page.script("document.querySelector('input[value=softmax]').click()")
    page.wait(lambda: page.all("#verdict [data-name=off]"))
    np.testing.assert_array_equal(page.columns("#outputs", 3), c.network(x))
    assert "Every token meets its bump" in page.text("#verdict")
    assert page.numbers("#verdict [data-name=off]") == [np.abs(c.network(x) - c.modified(x)).max()]
    page.slide("#k-temperature", 0)
    page.wait(lambda: "Missed bump" in page.text("#verdict"))
    np.testing.assert_array_equal(page.columns("#outputs", 3), with_temperature(thin(c.network), 1.0)(x))
    page.find("#reset-knobs").click()
    page.wait(lambda: "Every token meets its bump" in page.text("#verdict"))
    page.find("#k-ramp").send_keys(Keys.END)
    page.wait(lambda: page.all("#verdict .bad[data-name=share]"))
    page.script("document.querySelector('input[value=hardmax]').click()")
    page.settle()
    np.testing.assert_array_equal(page.columns("#outputs", 3), c.modified(x))


def test_another_network_plan_at_once_then_compile(page: Page) -> None:
    page.fill("cells", "4")
    page.wait(lambda: page.text("#plan dd[data-name=layers]") == str(pf.plan(1, 3, 4).layers))
    assert "press Compile" in page.text("#compile-state")
    assert "Below is still: softmax-mean, d = 1, n = 3, N = 6, sum" in page.text("#stale")
    c = build(page, "sum", 4)
    assert not page.text("#stale")
    np.testing.assert_array_equal(page.columns("#outputs", 3), c.modified(page.tokens()))
    page.fill("token_dim", "2")
    page.fill("seq_len", "2")
    page.fill("cells", "3")
    page.find("details summary").click()
    page.fill("kind", "lipschitz")
    page.find("#compile").click()
    page.wait(lambda: len(page.token_at(0)) == 2)
    before = page.token_at(0)
    page.token(0).send_keys(Keys.ARROW_UP)
    assert page.token_at(0) == pytest.approx([before[0], before[1] + 0.01])
    ActionChains(page.driver).drag_and_drop_by_offset(page.token(1), 30, -30).perform()
    page.settle()
    c2 = pf.compile(pf.targets.get("softmax-mean", 2, 2), cells_per_axis=3, kind="lipschitz")
    got = np.array(page.numbers("#outputs tbody td:nth-child(3)")).reshape(2, 2).T
    np.testing.assert_array_equal(got, c2.modified(page.tokens()))


def test_a_late_answer_for_the_old_network_is_dropped(page: Page) -> None:
    page.script(
        "const asked = window.fetch; window.fetch = async (...a) => {"
        "if (a[0] === '/api/look') await new Promise(later => setTimeout(later, 1500)); return asked(...a); }"
    )
    page.token(0).send_keys(Keys.ARROW_RIGHT)
    page.fill("seq_len", "2")
    page.find("#compile").click()
    page.wait(lambda: len(page.all("#outputs tbody tr")) == 2)
    page.settle()
    assert len(page.all("#outputs tbody tr")) == 2


def test_a_wide_network_shows_no_steps_that_it_does_not_take(page: Page) -> None:
    c = build(page, "wide", 4)
    page.script("document.querySelector('input[value=softmax]').click()")
    page.wait(lambda: page.all("#verdict [data-name=off]"))
    assert [item.get_attribute("data-name") for item in page.all("#verdict li")] == ["bound", "target", "off", "share"]
    assert f"It has {c.network.blocks} blocks" in page.text("#mode-text")


def test_bad_input_gets_a_sentence_beside_its_field(server: Server, driver: Any) -> None:
    page = Page(driver, server.url)
    page.open()
    page.errors()

    def says(name: str, words: str) -> bool:
        return words in page.text(f".field:has(#f-{name}) .error")

    # An earlier plan's sentence may still be there, so wait for the words and not for any.
    page.fill("cells", "many")
    page.wait(lambda: says("cells", "whole number"))
    assert page.find("#f-cells").get_attribute("aria-invalid") == "true"
    page.fill("cells", "4000")
    page.wait(lambda: says("cells", "explorer builds up to 600. Here N may be up to 10."))
    assert page.text("#plan dd[data-name=layers]") == f"{pf.plan(1, 3, 4000).layers:,}"
    page.find("#compile").click()
    page.wait(lambda: page.find("#compile").is_enabled() and says("cells", "explorer builds up to"))
    page.fill("cells", "5")
    page.wait(lambda: not page.text(".field:has(#f-cells) .error"))
    page.find("input[value=tolerance]").click()
    page.fill("tolerance", "0")
    page.wait(lambda: says("tolerance", "not a positive distance"))
    page.fill("tolerance", "0.1")
    page.fill("token_dim", "two")
    page.wait(lambda: says("token_dim", "whole number"))
    # The only errors in the console are the browser's own notes about refused requests.
    assert all("400 (Bad Request)" in message for message in page.errors())
    assert "Traceback" not in page.find("body").text


def test_theorem_2(page: Page) -> None:
    page.open("theorem-2")
    page.wait(lambda: page.all("#t2-outputs td"))
    for cells in (2, 6):
        page.slide("#t2-cells", cells)
        c = compiled(cells=cells, construction="sum")
        page.wait(lambda bound: page.numbers("#t2-facts div:first-child dd") == [bound], c.certificate.bound)
    x = page.tokens("#t2-tokens")
    outputs = page.columns("#t2-outputs", 4)
    np.testing.assert_array_equal(outputs, c.network(x))
    page.find("#t2-swap").click()
    page.settle()
    np.testing.assert_array_equal(page.columns("#t2-outputs", 4), outputs[:, [1, 0, 2]])
    page.token(1, "#t2-tokens").send_keys(Keys.PAGE_UP)
    page.settle()
    np.testing.assert_array_equal(page.columns("#t2-outputs", 4), c.network(page.tokens("#t2-tokens")))


def test_theorem_3(page: Page) -> None:
    page.open("theorem-3")
    page.wait(lambda: page.all("#t3-outputs td"))
    page.find("#t3-target option[value=sort]").click()
    ActionChains(page.driver).drag_and_drop_by_offset(page.token(0, "#t3-tokens"), 60, 0).perform()
    page.settle()
    c = compiled("sort", 4, "sum")
    np.testing.assert_array_equal(page.columns("#t3-outputs", 4), c.network(page.tokens("#t3-tokens")))
    page.find("#t3-positions").click()
    assert "best without positions" in page.text("#t3-outputs")
    assert not np.allclose(page.columns("#t3-outputs", 4), c.network(page.tokens("#t3-tokens")))
    assert "declared equivariant" in page.text("#t3-refusal")


def test_repeats(page: Page) -> None:
    page.open("repeats")
    page.wait(lambda: page.all("#rp-table td"))
    page.token(0, "#rp-tokens").send_keys(Keys.END)  # into the last cell
    page.token(2, "#rp-tokens").send_keys(Keys.END)
    page.token(2, "#rp-tokens").send_keys(Keys.PAGE_UP)  # the box is half-open: not out of it
    page.settle()
    assert page.token_at(2, "#rp-tokens") == [0.9999]
    assert "share a cell" in page.text("#rp-state")
    x = page.tokens("#rp-tokens")
    rows = "#rp-table tbody tr:nth-child(-n+3)"
    assert page.numbers(f"{rows} td:nth-child(3)") == [0.0, 0.0, 0.0]
    assert page.numbers(f"{rows} td:nth-child(4)") == compiled(cells=5).modified(x)[0].tolist()
    assert len(page.all("#rp-scale text")) == 3
    assert page.all("#rp-paper .lost")
    assert not page.all("#rp-sum .lost")
    page.slide("#rp-cells", 7)
    page.wait(
        lambda: (
            page.numbers("#rp-table tbody tr:nth-child(4) td:nth-child(3)")
            == [float(pf.plan(1, 3, 7, "paper").lost_share)]
        )
    )


def test_infinite(page: Page) -> None:
    page.open("infinite")
    largest = "#in-facts div:nth-child(1) dd"
    page.wait(lambda: page.all(largest))
    paper = pf.compile(pf.targets.get("scaled-mean", 1, 2), cells_per_axis=4, construction="paper")
    for far in (1, 6):
        page.slide("#in-far", far)
        page.settle()
        assert page.numbers(largest) == [paper.certificate.clip_high[0]]
        assert page.numbers("#in-facts div:nth-child(3) dd") == [0.0]
    page.slide("#in-sharp", 6)
    page.settle()
    assert page.numbers(largest)[0] > 0


def sees(page: Page, width: int, height: int, scheme: str) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_every_page_fits_and_is_reached_from_the_navigation(page: Page, width: int, scheme: str) -> None:
    """No page is wider than the screen, and no text but the indices of formulas is smaller than 13 px."""
    sees(page, width, 844, scheme)
    dark = page.script("return getComputedStyle(document.documentElement).backgroundColor") != "rgb(250, 249, 247)"
    assert dark == (scheme == "dark")
    for link, name in zip(page.all("nav a"), PAGES, strict=True):
        link.click()
        page.wait(lambda name: page.find(f"#page-{name}").is_displayed(), name)
        assert link.get_attribute("aria-current") == "page"
        page.wait(lambda name: page.all(f"#page-{name} svg *"), name)
        page.settle()
        assert page.script("return document.documentElement.scrollWidth <= innerWidth")
        assert page.script(SMALL_TEXT) == []


def test_a_saved_table_is_opened(tmp_path: Path, driver: Any) -> None:
    c = pf.compile(pf.targets.get("scaled-mean", 1, 3, (-1.0, 2.0)), cells_per_axis=4, construction="paper")
    c.save(tmp_path / "net")
    alone = Server.start(str(tmp_path / "net"))
    try:
        page = Page(driver, alone.url)
        page.open()
        assert page.text("#f-target option") == "opened: scaled-mean"
        assert not page.find("#f-cells").is_displayed()
        assert page.numbers("#bound") == [c.certificate.bound]
        before = page.tokens()
        page.token(0).send_keys(Keys.ARROW_RIGHT)
        page.settle()
        x = page.tokens()
        assert x[0, 0] == pytest.approx(before[0, 0] + 0.03)  # a hundredth of the box
        np.testing.assert_array_equal(page.columns("#outputs", 2), c.target(x))
        np.testing.assert_array_equal(page.columns("#outputs", 3), c.modified(x))
        page.script("document.querySelector('input[value=softmax]').click()")
        page.settle()
        np.testing.assert_array_equal(page.columns("#outputs", 3), c.network(x))
        page.find("#f-target option[value=centered]").click()
        page.find("#compile").click()
        page.wait(lambda: "centered" in page.address())
        assert page.errors() == []
    finally:
        alone.stop()


def test_a_function_of_ones_own_is_opened(tmp_path: Path, driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n\ndef f(x):\n    return x * np.max(x, axis=-1, keepdims=True)\n"
    )
    monkeypatch.chdir(tmp_path)
    for more, page_name in ((["--tolerance", "0.05"], "circuits"), (["--cells", "4"], "tables")):
        alone = Server.start("--target", "mine:f", *more)
        try:
            page = Page(driver, alone.url)
            page.errors()  # of a server that was stopped before
            page.open(page_name)
            found = {"circuits": "#cf-target option", "tables": "#f-target option"}[page_name]
            assert page.text(found) == "opened: mine:f"
            assert page.errors() == []
        finally:
            alone.stop()


def test_a_killed_server_gets_a_sentence(driver: Any) -> None:
    alone = Server.start()
    page = Page(driver, alone.url)
    page.open()
    page.errors()
    alone.stop()
    page.token(0).send_keys(Keys.ARROW_RIGHT)
    page.wait(lambda: "The server does not answer" in page.text("#notice"))
    page.find("#compile").click()
    page.wait(lambda: "provenformer explore" in page.text("#compile-state"))
    for name in PAGES[2:]:
        page.script("location.hash = arguments[0]", f"#/{name}")
        page.wait(lambda name: "The server does not answer" in page.text(f"#page-{name} .error"), name)
    messages = page.errors()
    assert messages
    assert all("ERR_CONNECTION_REFUSED" in message for message in messages)
