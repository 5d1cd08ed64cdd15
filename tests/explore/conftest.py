"""A running explorer and a real browser on it, for the tests that need one. Debian's chromium: `make test-browser`."""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--force-prefers-reduced-motion",
]  # fmt: skip


@pytest.fixture(scope="session")
def driver() -> Iterator[Any]:
    if not (CHROMIUM and DRIVER):
        pytest.skip("chromium and chromedriver are not installed; run `make test-browser`")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, "--window-size=1280,1000"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield browser
    browser.quit()


@pytest.fixture(scope="module")
def server(driver: Any) -> Iterator[Any]:  # noqa: ARG001  (without a browser nothing is started)
    from browser import Server

    running = Server.start()
    yield running
    running.stop()


@pytest.fixture
def page(server: Any, driver: Any) -> Iterator[Any]:
    """A fresh page; whatever the test does, the console must stay free of errors."""
    from browser import Page

    browser = Page(driver, server.url)
    browser.open()
    browser.errors()
    yield browser
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert browser.errors() == []
