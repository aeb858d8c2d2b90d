"""JupyterLab in a headless browser, for tests that see a notebook as a reader sees it."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from urllib.request import urlopen

from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.common.by import By
from selenium.webdriver.support.expected_conditions import element_to_be_clickable
from selenium.webdriver.support.ui import WebDriverWait

from workbook import paths
from workbook.notebooks.homes import environment, own_home

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
FLAGS = [
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--hide-scrollbars", "--window-size=1400,1900"),
]
SETTINGS = {
    # Every cell is drawn, not only those in view; no news and no updates are looked for.
    "notebook-extension/tracker": '{"windowingMode": "none"}',
    "apputils-extension/notification": '{"fetchNews": "false", "checkForUpdates": false}',
}
STARTS = 90  # seconds, at most, for a server, a page or a kernel
RUNS = 600  # seconds, at most, for a whole notebook

PANEL = "const panel = jupyterapp.shell.currentWidget, notebook = panel.content;"
OUTPUTS = f"""{PANEL}
const codes = notebook.widgets.filter(cell => cell.model.type === 'code');
const outputs = codes.flatMap(cell => cell.model.outputs.toJSON());
"""
IS_OPEN = """const panel = window.jupyterapp && jupyterapp.shell.currentWidget;
const session = panel && panel.context && panel.context.isReady && panel.sessionContext.session;
return Boolean(session && session.kernel && session.kernel.status === 'idle');
"""
IS_DONE = f"""{OUTPUTS}
const ran = codes.filter(cell => cell.model.sharedModel.source.trim())
    .every(cell => cell.model.executionCount && !cell.promptNode.textContent.includes('*'));
return outputs.some(output => output.output_type === 'error')
    || (ran && panel.sessionContext.session.kernel.status === 'idle');
"""
COMPLAINTS = f"""{OUTPUTS}
return outputs.filter(output => output.output_type === 'error' || output.name === 'stderr')
    .map(output => output.evalue || output.text);
"""
ARE_DRAWN = f"""{PANEL}
const written = notebook.widgets.map(cell => cell.model.sharedModel.source).join();
const figures = document.querySelectorAll('.jp-RenderedMermaid').length;
return figures === written.split('```mermaid').length - 1;
"""
DIAGRAMS = """return [...document.querySelectorAll('.jp-RenderedMermaid')].map(figure => {
    const image = figure.querySelector('img');
    return image && image.complete && image.naturalWidth ? image.alt : null;
});
"""
TOO_WIDE = """return [...document.querySelectorAll('.jp-OutputArea-output, .jp-RenderedMarkdown')]
    .filter(shown => shown.scrollWidth > shown.clientWidth + 2)
    .map(shown => shown.textContent.slice(0, 100));
"""
SCROLL = "document.querySelector('.jp-WindowedPanel-outer').scrollTop = arguments[0];"
HEIGHTS = """const page = document.querySelector('.jp-WindowedPanel-outer');
return [page.clientHeight, page.scrollHeight];
"""


class Lab:
    """A browser in which one notebook at a time is open, and what a reader sees in it."""

    def __init__(self, browser: Any, address: str, token: str) -> None:
        self._browser = browser
        self._address = address
        self._token = token

    def open(self, notebook: Path) -> None:
        """Open a notebook on a page of its own, and wait until its kernel is ready."""
        place = f"/doc/tree/notebooks/{notebook.name}?reset&token={self._token}"
        self._browser.get(self._address + place)
        self._until(lambda browser: browser.execute_script(IS_OPEN), STARTS)

    def run_all(self) -> None:
        """Forget all outputs, choose Run > Run All Cells, and wait for the end or an error."""
        self._command("notebook:clear-all-cell-outputs")
        entry = "//*[contains(@class, 'lm-MenuBar-itemLabel') and text() = 'Run']"
        self._browser.find_element(By.XPATH, entry).click()
        all_cells = (By.CSS_SELECTOR, ".lm-Menu-item[data-command='runmenu:run-all']")
        self._until(element_to_be_clickable(all_cells), STARTS).click()
        self._until(lambda browser: browser.execute_script(IS_DONE), RUNS)

    def complaints(self) -> list[str]:
        """Return the errors and warnings that the cells printed."""
        return list(self._browser.execute_script(COMPLAINTS))

    def diagrams(self) -> list[str | None]:
        """Return the alternative text of each diagram, `None` for one that was not drawn."""
        with suppress(TimeoutException):  # what is missing then is missing in the answer
            self._until(lambda browser: browser.execute_script(ARE_DRAWN), STARTS)
        return list(self._browser.execute_script(DIAGRAMS))

    def too_wide(self) -> list[str]:
        """Return how those outputs begin that do not fit on the page."""
        return list(self._browser.execute_script(TOO_WIDE))

    def photograph(self, folder: Path) -> None:
        """Write the whole page, slice by slice, into a folder as 00.png, 01.png and so on."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        height, total = self._browser.execute_script(HEIGHTS)
        for number, top in enumerate(range(0, total, height - 60)):
            self._browser.execute_script(SCROLL, top)
            self._browser.save_screenshot(str(folder / f"{number:02d}.png"))

    def close(self) -> None:
        """Stop the open notebook's kernel."""
        shut_down = f"{PANEL} panel.sessionContext.shutdown().then(arguments[0], arguments[0]);"
        self._browser.execute_async_script(shut_down)

    def _command(self, name: str) -> None:
        run = (
            "const [name, done] = arguments; jupyterapp.commands.execute(name).then(() => done());"
        )
        self._browser.execute_async_script(run, name)

    def _until(self, condition: Any, seconds: float) -> Any:
        return WebDriverWait(self._browser, seconds).until(condition)


@contextmanager
def lab(folder: Path) -> Iterator[Lab]:
    """Start JupyterLab on a copy of the notebooks, and a browser.

    Args:
        folder: Where the copy, the settings of both and the server's log go.
    """
    _copy_notebooks(folder / "project")
    with own_home() as home:
        token, port = secrets.token_hex(16), _free_port()
        server = _serve(folder, home, token, port)
        try:
            address = f"http://127.0.0.1:{port}"
            _wait_for(f"{address}/api", server)
            with _browser(folder) as browser:
                yield Lab(browser, address, token)
        finally:
            server.terminate()
            server.wait(STARTS)


def _copy_notebooks(project: Path) -> None:
    """Copy the notebooks into a project folder whose other entries are the real ones."""
    shutil.copytree(paths.NOTEBOOKS, project / "notebooks")
    for entry in paths.PROJECT.iterdir():
        if entry != paths.NOTEBOOKS:
            (project / entry.name).symlink_to(entry)


def _serve(folder: Path, home: Path, token: str, port: int) -> subprocess.Popen[bytes]:
    for name, settings in SETTINGS.items():
        file = folder / f"settings/@jupyterlab/{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(settings)
    own = {
        "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
    }
    command = [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={port}"),
        *(f"--ServerApp.root_dir={folder / 'project'}", "--ServerApp.port_retries=0"),
        *(f"--IdentityProvider.token={token}", "--LabApp.expose_app_in_browser=True"),
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]
    with (folder / "jupyterlab.log").open("wb") as log:
        variables = os.environ | environment(home) | own
        return subprocess.Popen(command, env=variables, stdout=log, stderr=log)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(address: str, server: subprocess.Popen[bytes]) -> None:
    until = monotonic() + STARTS
    while monotonic() < until and server.poll() is None:
        try:
            urlopen(address, timeout=5).close()
        except OSError:
            sleep(0.2)
        else:
            return
    raise RuntimeError("JupyterLab did not start; jupyterlab.log in the test's folder says why.")


@contextmanager
def _browser(folder: Path) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER or ""
    for flag in [*FLAGS, f"--user-data-dir={folder / 'profile'}"]:
        options.add_argument(flag)
    browser = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    try:
        browser.set_script_timeout(STARTS)
        yield browser
    finally:
        browser.quit()
