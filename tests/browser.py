"""A real browser without a window, driven over its DevTools protocol."""

import asyncio
import base64
import itertools
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")

# Every text against the nearest colour behind it.
CONTRASTS = """(() => {
  const parse = colour => colour.match(/[\\d.]+/g).map(Number)
  const light = colour => parse(colour).slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0)
  const behind = node => {
    for (; node; node = node.parentElement) {
      const colour = getComputedStyle(node).backgroundColor
      if ((parse(colour)[3] ?? 1) == 1) return colour
    }
    return 'rgb(255, 255, 255)'
  }
  const ratio = (one, other) => {
    const [dark, bright] = [light(one), light(other)].sort((a, b) => a - b)
    return (bright + 0.05) / (dark + 0.05)
  }
  const found = []
  for (const node of document.body.querySelectorAll('*')) {
    const own = [...node.childNodes].some(child => child.nodeType == 3 && child.data.trim())
    const style = getComputedStyle(node)
    if (!node.getClientRects().length || node.closest('title, desc')) continue
    if (own) found.push([ratio(node.closest('svg') ? style.fill : style.color, behind(node)), node.textContent])
  }
  return found
})()"""


class Browser:
    """One tab; `open` shows a page, `evaluate` asks it. `trouble` collects errors and warnings of the console."""

    def __init__(self, executable: str, folder: Path) -> None:
        flags = ["--headless=new", "--remote-debugging-port=0", f"--user-data-dir={folder}", "--no-first-run"]
        # Containers have a small /dev/shm, and root may not have a sandbox.
        flags += ["--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--disable-background-networking"]
        flags += ["--no-sandbox"] if os.geteuid() == 0 else []
        self.process = subprocess.Popen(
            [executable, *flags, "about:blank"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        self.folder = folder
        self.loop = asyncio.new_event_loop()
        self.numbers = itertools.count(1)
        self.events: list[dict[str, Any]] = []
        self.loop.run_until_complete(self._connect())
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    async def _connect(self) -> None:
        import aiohttp

        port_file = self.folder / "DevToolsActivePort"
        for _ in range(3000):
            if port_file.exists() and port_file.read_text().count("\n"):
                break
            await asyncio.sleep(0.1)
        port = port_file.read_text().split()[0]
        self.session = aiohttp.ClientSession()
        async with self.session.get(f"http://127.0.0.1:{port}/json/list") as answer:
            (page,) = [target for target in await answer.json() if target["type"] == "page"]
        self.socket = await self.session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and wait for its answer."""
        return self.loop.run_until_complete(asyncio.wait_for(self._send(method, parameters), 300))

    async def _send(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        number = next(self.numbers)
        await self.socket.send_json({"id": number, "method": method, "params": parameters})
        while (message := await self.socket.receive_json()).get("id") != number:
            self.events.append(message)
        assert "error" not in message, message
        return message["result"]

    def open(self, page: Path | str, width: int, theme: str = "light", media: str = "screen") -> None:
        """Show a file, or an address, in a window of this width."""
        address = page if isinstance(page, str) else page.as_uri()
        self.events.clear()
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.send("Emulation.setDeviceMetricsOverride", **size)
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.send("Emulation.setEmulatedMedia", media=media, features=features)
        self.send("Page.navigate", url=address)
        while not self.evaluate(f"document.readyState == 'complete' && location.href == {address!r}"):
            pass

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    @property
    def trouble(self) -> list[str]:
        """What the console shows, and exceptions."""
        shown = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [str(event["params"]) for event in self.events if event.get("method") in shown]

    @property
    def requests(self) -> list[str]:
        """The addresses that the page asked for."""
        sent = [event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [request["request"]["url"] for request in sent]

    def screenshot(self) -> bytes:
        """The whole page as PNG."""
        return base64.b64decode(self.send("Page.captureScreenshot", captureBeyondViewport=True)["data"])

    def pdf(self) -> bytes:
        """The page as a printer gets it, on A4."""
        self.send("Emulation.setEmulatedMedia", media="")
        size = {"paperWidth": 8.27, "paperHeight": 11.69, "preferCSSPageSize": True}
        return base64.b64decode(self.send("Page.printToPDF", **size)["data"])

    def close(self) -> None:
        """End the browser that this object started."""
        self.loop.run_until_complete(self.socket.close())
        self.loop.run_until_complete(self.session.close())
        self.loop.close()
        self.process.terminate()
        try:
            self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start_browser(folder: Path) -> Browser:
    """The first that is installed; the test is skipped where there is none."""
    pytest.importorskip("aiohttp", reason="the browser is driven with aiohttp, which is not installed")
    executable = next(filter(None, map(shutil.which, NAMES)), None)
    if executable is None:
        pytest.skip(f"no browser is installed: none of {', '.join(NAMES)}")
    return Browser(executable, folder)
