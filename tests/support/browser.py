"""A real browser without a driver: Chromium, spoken to through its own debugging pipe.

The browser is whichever Chromium or Chrome the machine has. Where there is none and the machine is
a Debian that may install packages, it is installed; elsewhere the tests are skipped and say what is
missing.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from servers import installing

_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
_HELP = (
    "The report page is tested in a real browser and there is none. Install Chromium (Debian: "
    "apt-get install chromium), or name one in the environment variable BROWSER_PATH."
)


# The protocol is spoken on the descriptors 3 and 4, whatever ours are called.
_START = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
os.dup2(ends[0], 3), os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class BrowserMissingError(Exception):
    """There is no browser, and none can be installed."""


def find_browser() -> str:
    """The path of a browser, installed if need be."""
    found = _installed()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        with installing():
            found = _installed() or _install()
    if found is None:
        raise BrowserMissingError(_HELP)
    return found


def _install() -> str | None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium",
         "fonts-dejavu-core"],
    ):  # fmt: skip
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=900, check=False
        )
        if done.returncode:
            raise BrowserMissingError(f"{_HELP} {' '.join(command)} said: {done.stderr[-500:]}")
    return _installed()


def _installed() -> str | None:
    named = os.environ.get("BROWSER_PATH")
    return named or next((path for name in _NAMES if (path := shutil.which(name))), None)


# Contrast by WCAG 2: text against the first opaque background above it.
_ILLEGIBLE = """
(() => {
  const parse = c => c.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const behind = e => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  return [...document.querySelectorAll('body *')].filter(e =>
      [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())
      && !e.closest(IGNORED))
    .map(e => {
      const style = getComputedStyle(e), svg = e instanceof SVGElement;
      const front = light(parse(svg ? style.fill : style.color));
      const back = light(behind(svg ? e.closest('figure') : e));
      const ratio = (Math.max(front, back) + .05) / (Math.min(front, back) + .05);
      return [ratio, e.textContent.slice(0, 40)];
    }).filter(([ratio]) => ratio < 4.5);
})()
"""


class Page:
    """One tab. Everything it asks the network for, and everything it complains about, is kept."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = read, write
        self._numbers = itertools.count(1)
        self._buffer = b""
        self._session: str | None = None
        self.requests: list[str] = []
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log", "Accessibility"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Ask the browser for something and wait for its answer."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return dict(answer["result"])
            self._note(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            piece = os.read(self._read, 1 << 20)
            if not piece:
                raise RuntimeError("the browser ended")
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(line))

    def _note(self, event: dict[str, Any]) -> None:
        parameters = event.get("params", {})
        match event.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])
            case "Log.entryAdded":
                self.complaints.append(parameters["entry"]["text"])
            case "Runtime.exceptionThrown":
                self.complaints.append(str(parameters["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                self.complaints.append(str(parameters["args"]))

    def open(self, file: Path, *, width: int = 1080, height: int = 900, dark: bool = False) -> None:
        """Show a file in a window of this size."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=file.resolve().as_uri())
        while self.evaluate("document.readyState") != "complete":
            pass

    def illegible(self, ignored: str) -> list[Any]:
        """Texts with too little contrast, but for what is inside of these selectors."""
        return self.evaluate(_ILLEGIBLE.replace("IGNORED", json.dumps(ignored)))

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(str(result["exceptionDetails"]))
        return result["result"].get("value")

    def screenshot(self) -> bytes:
        """The whole page as a PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(shot["data"])


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[Page]:
    """A headless browser with a profile of its own."""
    to_browser, ours_out = os.pipe()
    ours_in, from_browser = os.pipe()
    command = [
        find_browser(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--hide-scrollbars", "--no-first-run", "--disable-background-networking",
        f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank",
    ]  # fmt: skip

    process = subprocess.Popen(
        [sys.executable, "-c", _START, str(to_browser), str(from_browser), *command],
        pass_fds=(to_browser, from_browser),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_browser)
    os.close(from_browser)
    try:
        yield Page(ours_in, ours_out)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)
        os.close(ours_in)
        os.close(ours_out)
