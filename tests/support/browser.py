"""What the browser tests drive: the explorer as a user starts it, and a page of it with words for what one does there."""

import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
from selenium import webdriver
from selenium.webdriver import Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

SECONDS = 30  # for anything to appear, on a busy machine


@dataclass
class Server:
    """The command in a process of its own, as a user starts it."""

    process: subprocess.Popen[str]
    url: str

    @classmethod
    def start(cls, *more: str) -> "Server":
        code = "from provenformer.cli import main; main()"
        command = [sys.executable, "-c", code, "explore", *more, "--port", "0", "--no-open"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/", line)
        assert found, line
        # A test waits for pages, not for the first table, which is built when it is first asked for.
        first = Request(found.group() + "api/first-table", b"{}", {"content-type": "application/json"})
        urlopen(first).read()
        return cls(process, found.group())

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@dataclass
class Page:
    """A browser on the explorer."""

    driver: webdriver.Chrome
    url: str

    def open(self, page: str = "tables") -> None:
        self.driver.get("about:blank")
        self.driver.get(f"{self.url}#/{page}")
        # A server that is stopped while code is still on its way would leave errors in the console.
        self.wait(lambda: self.script("return document.documentElement.dataset.fetched"))

    def script(self, code: str, *args: Any) -> Any:
        return self.driver.execute_script(code, *args)

    def wait(self, until: Callable[..., Any], *args: Any) -> Any:
        end = time.monotonic() + SECONDS
        while not (value := until(*args)):
            assert time.monotonic() < end, "the page did not get there"
            time.sleep(0.02)
        return value

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        return str(self.script("return document.querySelector(arguments[0]).textContent", selector))

    def numbers(self, selector: str) -> list[float]:
        """The `data-value` of every match, at full precision."""
        found = self.script("return [...document.querySelectorAll(arguments[0])].map(e => e.dataset.value)", selector)
        return [float(part) for value in found for part in value.split()]

    def fill(self, name: str, value: str) -> None:
        """Type into a field of the form, or choose from its list."""
        field = self.find(f"#f-{name}")
        if field.tag_name == "select":
            field.find_element(By.CSS_SELECTOR, f"option[value={value}]").click()
        else:
            field.send_keys(Keys.CONTROL, "a")
            field.send_keys(value)

    def slide(self, selector: str, value: float) -> None:
        code = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input', {bubbles: true}))"
        self.script(code, self.find(selector), value)

    def token(self, j: int, host: str = "#tokens") -> WebElement:
        return self.all(f"{host} .handle")[j]

    def token_at(self, j: int, host: str = "#tokens") -> list[float]:
        return [float(v) for v in self.tokens(host)[:, j]]

    def tokens(self, host: str = "#tokens") -> np.ndarray:
        """The input as the page has it, (d, n)."""
        code = "return [...document.querySelectorAll(arguments[0])].map(e => e.getAttribute('aria-valuetext'))"
        return np.array([[float(v) for v in text.split(", ")] for text in self.script(code, f"{host} .handle")]).T

    def columns(self, table: str, column: int) -> np.ndarray:
        """A column of numbers of a table, for d = 1: (1, n)."""
        return np.array([self.numbers(f"{table} tbody tr td:nth-child({column})")])

    def settle(self) -> None:
        """Until every request is answered and shown."""
        self.wait(lambda: self.find("main").get_attribute("aria-busy") != "true")

    def address(self) -> str:
        """The link to what is shown, once it stands still."""
        before, now = "", str(self.script("return location.hash"))
        while now != before:
            time.sleep(0.4)
            before, now = now, str(self.script("return location.hash"))
        return now

    def errors(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]
