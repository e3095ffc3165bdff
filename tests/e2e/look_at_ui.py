"""Uses the page of `trainer ui` in headless Chromium and prints as JSON what a reader sees and does there.

    look_at_ui.py CHROMIUM ADDRESS --live NAME --ended NAME --other NAME [--deleted NAME DIRECTORY] [--pictures FOLDER]

--live: a run that goes on and is stopped here; --ended: one that has a result; --other: one to compare it with; --deleted: one
whose DIRECTORY is removed while it is shown. Run by test_ui_page.py, with a Python that has the package playwright.
"""
import argparse
import json
import shutil

from playwright.sync_api import sync_playwright

WAIT = 60_000  # milliseconds, at most


class Reader:
    def __init__(self, browser, address, scheme="light", width=1280, height=900, pictures=None):
        self.page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": height})
        self.page.set_default_timeout(WAIT)
        self.errors, self.elsewhere, self.pictures, self.address = [], [], pictures, address
        self.page.on("console", lambda message: self.errors.append(message.text) if message.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: None if request.url.startswith(address) else self.elsewhere.append(request.url))
        self.page.goto(address)

    def picture(self, name):
        if self.pictures:
            self.page.screenshot(path=f"{self.pictures}/{name}.png", full_page=True)

    def text(self):
        return self.page.locator("body").inner_text()

    def width(self):
        return self.page.evaluate("document.documentElement.scrollWidth")

    def list(self):
        self.page.locator("#top a", has_text="Runs").click()
        self.page.wait_for_selector(".runs tbody tr")

    def open(self, name):
        self.list()
        self.page.locator(".runs a", has_text=name).first.click()
        self.page.wait_for_selector(".figures")

    def tab(self, name):
        self.page.locator(".tabs a", has_text=name).click()
        self.page.wait_for_selector(f".tabs a[aria-current]:text-is('{name}')")


def step_of(reader):
    return int(reader.page.locator(".figure b").first.inner_text().split("/")[0].replace(",", ""))


def watch_live(reader, name):
    """A run that goes on: its step and its curve move by themselves, a zoom stays, and it is stopped by two clicks."""
    reader.open(name)
    page = reader.page
    page.wait_for_selector(".chart .plot path")
    seen = {"title": page.title(), "first": step_of(reader), "curve": page.locator(".chart .plot path").last.get_attribute("d")}
    page.wait_for_function("step => Number(document.querySelector('.figure b').textContent.split('/')[0].replace(/,/g, '')) > step", arg=seen["first"])
    seen["second"], seen["moved"] = step_of(reader), page.locator(".chart .plot path").last.get_attribute("d") != seen["curve"]
    page.locator(".chart .plot").first.focus()
    page.keyboard.press("+")
    before = page.evaluate("JSON.stringify(shared.view)")
    page.wait_for_function("step => Number(document.querySelector('.figure b').textContent.split('/')[0].replace(/,/g, '')) > step", arg=seen["second"])
    seen["zoom_stays"] = before != "null" and page.evaluate("JSON.stringify(shared.view)") == before and page.locator("#reset").is_enabled()
    reader.picture("live")
    reader.tab("Log")
    page.wait_for_selector(".log div")
    seen["log"] = page.locator(".log").inner_text()
    reader.picture("log")
    reader.tab("Curves")
    page.locator("#stop").click()
    page.locator("#stop-now").click()
    page.wait_for_selector("header .badge.stopped")
    seen["state"] = page.locator("header .badge").inner_text()
    return seen


def read_ended(reader, name):
    reader.open(name)
    seen = {}
    for tab in ("Curves", "Samples", "Memory", "Data", "Configuration"):
        reader.tab(tab)
        reader.page.wait_for_timeout(50)
        seen[tab] = reader.text()
        reader.picture(tab.lower())
    reader.tab("Data")
    seen["marked"] = reader.page.locator("mark").all_text_contents()
    return seen


def compare(reader, one, other):
    reader.list()
    for name in (one, other):
        reader.page.locator(f"tr[data-run='{name}'] input").check()
    reader.page.locator(".button", has_text="Compare 2 runs").click()
    reader.page.wait_for_selector(".chart .plot path")
    reader.picture("compare")
    return reader.text()


def plan(reader):
    page = reader.page
    page.locator("#top a", has_text="Memory plan").click()
    page.wait_for_selector(".stacked")
    seen = {"first": page.locator(".figure b").first.inner_text(), "cards": page.locator("tbody tr").count()}
    page.select_option("#method", "full")
    page.wait_for_function("text => document.querySelector('.figure b').textContent !== text", arg=seen["first"])
    seen["full"] = page.locator(".figures").inner_text()
    page.select_option("#card", "141GB")
    page.wait_for_function("() => document.querySelector('.figures').innerText.includes('95 % of 141GB')")
    seen["on_141GB"] = page.locator(".figures").inner_text()
    reader.picture("plan")
    return seen


def chat(reader, name):
    reader.open(name)
    reader.tab("Chat")
    page = reader.page
    page.locator("#message").fill("Please bake peas.")
    page.keyboard.press("Enter")
    page.wait_for_function("() => [...document.querySelectorAll('.pane')].length === 2 && !document.querySelector('#send').disabled")
    reader.picture("chat")
    return {side: page.locator(f"[data-side={side}] .said").all_text_contents() for side in ("result", "base")}


def delete(reader, name, directory):
    reader.open(name)
    shutil.rmtree(directory)
    reader.page.wait_for_selector("text=no longer there")
    reader.picture("deleted")
    return reader.text()


def on_a_phone(browser, given):
    reader = Reader(browser, given.address, width=360, height=740, pictures=given.pictures and given.pictures + "/phone")
    widths = {}
    reader.list()
    widths["list"] = reader.width()
    reader.picture("list")
    reader.open(given.ended)
    for tab in ("Curves", "Samples", "Memory", "Data", "Log", "Chat", "Configuration"):
        reader.tab(tab)
        reader.page.wait_for_timeout(100)
        widths[tab] = reader.width()
        reader.picture(tab.lower())
    reader.page.locator("#top a", has_text="Memory plan").click()
    reader.page.wait_for_selector(".stacked")
    widths["plan"] = reader.width()
    reader.picture("plan")
    return {"widths": widths, "errors": reader.errors}


def main(given):
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=given.chromium)
        reader = Reader(browser, given.address, pictures=given.pictures)
        reader.list()
        reader.picture("list")
        result = {"list": reader.text(), "live": watch_live(reader, given.live), "ended": read_ended(reader, given.ended),
                  "compared": compare(reader, given.ended, given.other), "plan": plan(reader), "chat": chat(reader, given.ended)}
        reader.page.locator("#top a", has_text="Runs").click()
        reader.page.locator("#find").fill(given.other)
        reader.page.wait_for_function("() => document.querySelectorAll('.runs tbody tr').length === 1")
        result["found"] = reader.page.locator(".runs tbody tr").inner_text()
        reader.page.locator("#find").fill("")
        result["title"], result["scripts"] = reader.page.title(), reader.page.evaluate("document.scripts.length")
        result.update(errors=list(reader.errors), elsewhere=reader.elsewhere)
        if given.deleted:
            result["deleted"] = delete(reader, *given.deleted)
        result["phone"] = on_a_phone(browser, given)
        dark = Reader(browser, given.address, scheme="dark", pictures=given.pictures and given.pictures + "/dark")
        dark.open(given.ended)
        dark.picture("curves")
        colour = "getComputedStyle(document.body).backgroundColor"
        result["papers"] = [reader.page.evaluate(colour), dark.page.evaluate(colour)]
        browser.close()
    print(json.dumps(result))


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("chromium")
    options.add_argument("address")
    for option in ("--live", "--ended", "--other"):
        options.add_argument(option, required=True)
    options.add_argument("--deleted", nargs=2)
    options.add_argument("--pictures")
    main(options.parse_args())
