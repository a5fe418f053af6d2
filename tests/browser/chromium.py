"""Headless Chromium over its DevTools protocol: as much of it as the test of the report's page and its pictures need."""
import base64
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

from websockets.sync.client import connect


class Chromium:
    """One browser process, with a folder of its own. Use as a context."""

    def __init__(self, program=None):
        self.program = program or shutil.which("chromium")
        if not self.program:
            raise FileNotFoundError("no chromium on the path; tools/setup --browser installs it")

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        flags = ["--headless=new", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-background-networking",
                 "--disable-component-update", "--disable-dev-shm-usage", "--remote-debugging-port=0", f"--user-data-dir={self.folder.name}"]
        if os.geteuid() == 0:
            flags.append("--no-sandbox")
        self.process = subprocess.Popen([self.program, *flags, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        port_file = pathlib.Path(self.folder.name, "DevToolsActivePort")
        for _ in range(1200):
            if port_file.exists() and len(port_file.read_text().split()) == 2:
                break
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.program} ended with {self.process.returncode} before it could be driven")
            time.sleep(0.1)
        port, path = port_file.read_text().split()
        self.connection = contextlib.ExitStack()
        self.socket = self.connection.enter_context(connect(f"ws://127.0.0.1:{port}{path}", max_size=None, compression=None, open_timeout=120))
        self.number = 0
        return self

    def __exit__(self, *_):
        self.connection.close()
        self.process.terminate()
        self.process.wait()
        self.folder.cleanup()

    def open(self, file, width, height=900, dark=False):
        """A tab with this file, loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        page.events.clear()
        page.call("Page.navigate", url=pathlib.Path(file).resolve().as_uri())
        page.wait("performance.getEntriesByName('page done').length === 1")
        return page

    def call(self, method, session=None, page=None, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        self.socket.send(json.dumps(message))
        while True:
            answer = json.loads(self.socket.recv(timeout=300))
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            if page is not None and answer.get("sessionId") == session:
                page.events.append(answer)


class Page:
    def __init__(self, browser, session, target):
        self.browser, self.session, self.target, self.events = browser, session, target, []

    def call(self, method, **params):
        return self.browser.call(method, session=self.session, page=self, **params)

    def value(self, expression):
        """The value of a JavaScript expression; an exception in it is raised here."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails'].get('exception', {}).get('description', answer['exceptionDetails'])}")
        return answer["result"].get("value")

    def wait(self, expression, seconds=120):
        end = time.time() + seconds
        while not self.value(f"document.readyState === 'complete' && ({expression})"):
            if time.time() > end:
                raise TimeoutError(f"not true after {seconds} s: {expression}")
            time.sleep(0.05)

    def frame(self):
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))")

    def key(self, key, text=None):
        one = text if text is not None else key if len(key) == 1 else ""
        self.call("Input.dispatchKeyEvent", type="keyDown" if one or key == "Enter" else "rawKeyDown", key=key, text="\r" if key == "Enter" else one)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def click(self, x, y, count=1):
        for n in range(1, count + 1):
            for kind in ("mousePressed", "mouseReleased"):
                self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=n)

    def drag(self, x, y, to_x, to_y):
        self.call("Input.dispatchMouseEvent", type="mousePressed", x=x, y=y, button="left", clickCount=1)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=(x + to_x) / 2, y=(y + to_y) / 2, button="left", buttons=1)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=to_x, y=to_y, button="left", buttons=1)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", x=to_x, y=to_y, button="left", clickCount=1)

    def wheel(self, x, y, by):
        self.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=by)

    def click_on(self, selector):
        """Clicks the middle of the first element that a CSS selector names."""
        x, y = self.value(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'center'}});"
                          " const r = e.getBoundingClientRect(); return [r.left + r.width / 2, r.top + r.height / 2]; })()")
        self.click(x, y)

    def picture(self, file, whole=False):
        self.frame()
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        pathlib.Path(file).write_bytes(base64.b64decode(data))

    def errors(self):
        """Errors and warnings of the console, exceptions, and every request but the one for the page itself."""
        self.value("0")
        out = []
        for e in self.events:
            p = e["params"]
            if e["method"] == "Runtime.exceptionThrown":
                out.append(json.dumps(p["exceptionDetails"]))
            elif e["method"] == "Runtime.consoleAPICalled" and p["type"] in ("error", "warning", "assert"):
                out.append(json.dumps(p["args"]))
            elif e["method"] == "Log.entryAdded" and p["entry"]["level"] in ("error", "warning"):
                out.append(p["entry"]["text"])
            elif e["method"] == "Network.requestWillBeSent" and p["type"] != "Document":
                out.append("request: " + p["request"]["url"])
        return out

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)
