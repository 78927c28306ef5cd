"""Chromium without a window, driven over the DevTools protocol through a pipe: no package and no port."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe",
)  # fmt: skip
READY = "document.readyState === 'complete'"
PATIENCE_S = 300


class Browser:
    """One browser with one page.

    Attributes
    ----------
    complaints : errors and warnings of the console and of the page's policy, oldest first
    """

    def __init__(self, program: str, profile: Path) -> None:
        self._program, self._profile = program, profile
        self._number = 0
        self._session = ""
        self._rest = b""
        self.complaints: list[str] = []

    def __enter__(self) -> Browser:
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        command = [self._program, *FLAGS, f"--user-data-dir={self._profile}", "about:blank"]

        # The protocol is on descriptors 3 and 4 of the browser.
        def descriptors() -> None:
            first, second = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(first, 3)
            os.dup2(second, 4)

        self._process = subprocess.Popen(
            command,
            preexec_fn=descriptors,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        targets = self._call("Target.getTargets")["targetInfos"]
        page = next(each["targetId"] for each in targets if each["type"] == "page")
        attached = self._call("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._out)
        self._process.kill()
        self._process.wait()
        os.close(self._in)

    def open(self, url: str) -> None:
        """Go to a page and wait until it is complete."""
        self._call("Page.navigate", url=url)
        self._until_loaded()

    def shape(self, width: int, height: int, *, dark: bool = False, scripts: bool = True) -> None:
        """Set the size of the window, the colour scheme, and whether scripts run."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self._call("Emulation.setScriptExecutionDisabled", value=not scripts)

    def run(self, script: str) -> Any:
        """Return the value of an expression in the page; a promise is awaited."""
        found = self._call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            raise AssertionError(found["exceptionDetails"]["exception"]["description"])
        return found["result"].get("value")

    def fill(self, selector: str, text: str) -> None:
        """Click into a field and type."""
        self._press(selector)
        self.run(f"document.querySelector({json.dumps(selector)}).select()")
        self._call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """Click what stays on the page."""
        self._press(selector)

    def follow(self, selector: str) -> None:
        """Click what leads to another page, and wait for it."""
        self.run("window.left = true")
        self._press(selector)
        while True:
            try:
                if not self.run("window.left === true"):
                    break
            except AssertionError:
                continue
        self._until_loaded()

    def screenshot(self, path: Path) -> None:
        """Store the complete page as PNG."""
        found = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def _press(self, selector: str) -> None:
        """Press the mouse in the middle of an element, which must be visible and in front."""
        where = self.run(
            f"""(() => {{
              const element = document.querySelector({json.dumps(selector)});
              if (!element) return "there is no such element";
              element.scrollIntoView({{block: "center"}});
              const box = element.getBoundingClientRect();
              const at = [box.x + box.width / 2, box.y + box.height / 2];
              const front = document.elementFromPoint(...at);
              return front && (element.contains(front) || front.contains(element)) ? at : "it is covered or hidden";
            }})()"""
        )
        assert isinstance(where, list), f"{selector}: {where}"
        for kind in ("mousePressed", "mouseReleased"):
            self._call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=where[0],
                y=where[1],
                button="left",
                clickCount=1,
            )

    def _until_loaded(self) -> None:
        while True:
            try:
                if self.run(READY):
                    return
            except AssertionError:
                continue  # the context went away with the earlier page

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            received = self._receive()
            if received.get("id") == self._number:
                if "error" in received:
                    raise AssertionError(f"{method}: {received['error']['message']}")
                result: dict[str, Any] = received["result"]
                return result
            self._note(received)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._in, 1 << 20)
            assert part, "the browser has ended"
            self._rest += part
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def _note(self, event: dict[str, Any]) -> None:
        """Remember what the page complained about."""
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            entry = parameters["entry"]
            self.complaints.append(f"{entry['text']} {entry.get('url', '')}")
        elif method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.complaints.append(str(details.get("exception", details).get("description")))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
            self.complaints.append(str([each.get("value") for each in parameters["args"]]))
