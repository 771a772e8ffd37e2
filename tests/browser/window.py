"""One window of Chromium, with what tests do and look for in it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from typing import Any, Final

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, TimeoutException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.support.wait import WebDriverWait

from tests.browser.site import Site

ROWS: Final = "#result_list tbody tr"
PLAIN: Final = "/login/"
"""A page that everybody sees."""
PATIENCE: Final = 30
"""Seconds after which what is waited for doesn't come."""
QUICKLY: Final = """
const real = window.setTimeout;
window.setTimeout = (call, wait, ...rest) => real(call, wait / 10, ...rest);
"""
"""Lets a page's timers run ten times as fast."""
WATCH: Final = """
document.addEventListener("securitypolicyviolation", (event) => {
    const seen = JSON.parse(localStorage.getItem("violations") ?? "[]");
    const { violatedDirective, blockedURI, sourceFile, sample } = event;
    seen.push([location.href, violatedDirective, blockedURI, sourceFile, sample]);
    localStorage.setItem("violations", JSON.stringify(seen));
});
"""


class Window:
    """A window that a person looks at.

    Args:
        site: What is looked at.
    """

    def __init__(self, site: Site) -> None:
        self.site = site
        chromium, driver = map(shutil.which, ("chromium", "chromedriver"))
        if chromium is None or driver is None:
            raise RuntimeError("Install chromium and its driver, chromedriver.")
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for word in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage"):
            options.add_argument(f"--{word}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        service = webdriver.ChromeService(driver)
        self.driver = webdriver.Chrome(options=options, service=service)
        self._do("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
        self.open(PLAIN)  # so that cookies have a site
        self._paces: list[str] = []

    def _do(self, command: str, **arguments: Any) -> dict[str, Any]:
        done: dict[str, Any] = self.driver.execute_cdp_cmd(command, arguments)
        return done

    def be(self, user: str) -> None:
        """Sign in."""
        self.driver.delete_all_cookies()
        self.driver.add_cookie({"name": "sessionid", "value": self.site.sessions[user]})

    def open(self, path: str) -> None:
        """Go to a page of the site."""
        self.driver.get(f"{self.site.address}{path}")

    def hurry(self) -> None:
        """Let the timers of pages to come run ten times as fast."""
        done = self._do("Page.addScriptToEvaluateOnNewDocument", source=QUICKLY)
        self._paces.append(done["identifier"])

    def dawdle(self) -> None:
        """Let the timers of pages to come run as everywhere."""
        for identifier in self._paces:
            self._do("Page.removeScriptToEvaluateOnNewDocument", identifier=identifier)
        self._paces.clear()

    def connected(self, answers: bool) -> None:
        """Let the network be there, or not."""
        self._do("Network.enable")
        rates = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        self._do("Network.emulateNetworkConditions", offline=not answers, **rates)

    def dress(self, *, dark: bool = False, width: int = 1280, height: int = 900) -> None:
        """Look at pages in dark or light colours, and in a window of some size."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._do("Emulation.setEmulatedMedia", features=[scheme])
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self._do("Emulation.setDeviceMetricsOverride", **size)

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script in the page, past its policy, and return what it returns."""
        return self.driver.execute_script(script, *arguments)

    def text(self, selector: str = "body") -> str:
        """Return the text that is seen of an element, "" if it isn't there."""
        script = "return document.querySelector(arguments[0])?.innerText ?? ''"
        return str(self.run(script, selector))

    def texts(self, selector: str) -> list[str]:
        """Return the texts that are seen of all such elements."""
        script = (
            "return [...document.querySelectorAll(arguments[0])].map((e) => e.innerText.trim())"
        )
        return list(map(str, self.run(script, selector)))

    def count(self, selector: str) -> int:
        """Return how many such elements there are."""
        return int(self.run("return document.querySelectorAll(arguments[0]).length", selector))

    def click(self, selector: str) -> None:
        """Click an element as a person does."""

        def clicked() -> bool:
            try:
                self.driver.find_element("css selector", selector).click()
            except StaleElementReferenceException:
                return False
            return True

        self.until(clicked)

    def act(self, action: str) -> None:
        """Choose an action of the list for its first row, and go."""
        self.click(f"{ROWS} .action-select")
        self.click(f"#changelist-form option[value={action}]")
        self.click("#changelist-form button[name=index]")

    def press(self, *keys: str) -> None:
        """Press keys, one after the other, wherever the focus is."""
        for key in keys:
            ActionChains(self.driver).send_keys(key).perform()

    def focused(self) -> str:
        """Return the tag of the element that has the focus, and its id, value or text."""
        script = """
            const at = document.activeElement;
            return [at.localName, at.id || at.value || at.innerText].join(" ").trim();
        """
        return str(self.run(script))

    def until(self, condition: Callable[[], Any]) -> None:
        """Wait until something holds."""
        try:
            WebDriverWait(self.driver, PATIENCE, 0.05).until(lambda _: condition())
        except TimeoutException:
            raise AssertionError(f"It never came. What is seen:\n{self.text()}") from None

    def sees(self, text: str, selector: str = "body") -> None:
        """Wait until a text is seen."""
        self.until(lambda: text in self.text(selector))

    def misses(self, text: str, selector: str = "body") -> None:
        """Wait until a text is no longer seen."""
        self.until(lambda: text not in self.text(selector))

    def complaints(self) -> list[str]:
        """Return what the browser has complained of since it was last asked, and forget that."""
        script = "const key = 'violations', seen = localStorage.getItem(key);"
        script += "localStorage.removeItem(key); return seen"
        seen = [str(each) for each in json.loads(self.run(script) or "[]")]
        entries: Any = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return seen + [e["message"] for e in entries if e["source"] in ("security", "javascript")]

    def forget(self) -> None:
        """Be as new."""
        self.dawdle()
        self.run("sessionStorage.clear(); localStorage.clear()")
        self.driver.delete_all_cookies()
        self.open(PLAIN)

    def close(self) -> None:
        """Close it."""
        self.driver.quit()
