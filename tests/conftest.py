"""What tests of several folders share: one thread, the command line, a real browser for pages."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from brickwork import cli

Opened = Callable[..., AbstractContextManager[tuple[Any, list[str]]]]


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Small networks train faster, and quietly beside others, on one thread."""
    torch.set_num_threads(1)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run `brickwork …` in this process: (exit code, stdout, stderr)."""

    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            cli.main(list(map(str, arguments)))
        out, err = capsys.readouterr()
        return int(caught.value.code or 0), out, err

    return call


@pytest.fixture
def browser() -> Opened:
    """`with browser(page) as (tab, complaints)`: Debian's chromium, driven by Playwright; skipped where there is none.

    complaints: errors, warnings, and whatever a page from a file asked of a network.
    """
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    binary = shutil.which("chromium")
    if binary is None:
        pytest.skip("there is no chromium here")

    @contextmanager
    def opened(page: Path | str, **options: Any) -> Iterator[tuple[Any, list[str]]]:
        address = page if isinstance(page, str) else page.resolve().as_uri()
        complaints: list[str] = []
        with playwright.sync_playwright() as driver:
            program = driver.chromium.launch(executable_path=binary, args=["--no-sandbox", "--disable-gpu"])
            try:
                tab = program.new_page(**options)
                tab.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
                tab.on("pageerror", lambda error: complaints.append(str(error)))
                if address.startswith("file:"):
                    tab.on(
                        "request",
                        lambda r: complaints.append(r.url) if not r.url.startswith(("file:", "data:")) else None,
                    )
                tab.goto(address)
                yield tab, complaints
            finally:
                program.close()

    return opened
