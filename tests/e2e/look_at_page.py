"""Opens a page of `trainer report` in headless Chromium and prints as JSON what a reader sees and does there.

    look_at_page.py CHROMIUM PAGE [--only-look] [--pictures FOLDER]

Run by test_report_page.py, with a Python that has the package playwright.
"""
import argparse
import json
import pathlib

from playwright.sync_api import sync_playwright

VIEWS = {"light": ("light", 1280, 900), "dark": ("dark", 1280, 900), "phone": ("light", 360, 740)}


def seen(page):
    """What the page shows without being touched."""
    return page.evaluate("""() => ({
        title: document.title, text: document.body.innerText, charts: [...document.querySelectorAll(".chart")].map(c => c.dataset.chart),
        lines: document.querySelectorAll(".plot path").length, scripts: document.scripts.length,
        paper: getComputedStyle(document.body).backgroundColor, ink: getComputedStyle(document.body).color,
        width: document.documentElement.scrollWidth})""")


def ticks(chart):
    return chart.locator(".plot text").all_text_contents()


def use(page):
    """Hover, zoom by dragging, back, and the same by keys; in the first chart."""
    chart, plot = page.locator(".chart").first, page.locator(".chart .plot").first
    tip = chart.locator(".tip")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    at = lambda part: (box["x"] + part * box["width"], box["y"] + box["height"] / 2)
    used = {"ticks": ticks(chart), "tip_before": tip.is_visible()}
    page.mouse.move(*at(.5))
    used["tip"] = tip.inner_text() if tip.is_visible() else ""
    used["tip_box"], used["plot_box"] = tip.bounding_box(), box
    used["cursors"] = page.locator(".plot .cursor").count()
    page.mouse.move(*at(.3))
    page.mouse.down()
    page.mouse.move(*at(.4), steps=3)
    used["selection"] = page.locator(".selection").count()
    page.mouse.move(*at(.6), steps=3)
    page.mouse.up()
    used["zoomed"], used["others_zoomed"] = ticks(chart), ticks(page.locator(".chart").nth(1))
    page.locator("#reset").click()
    used["reset"] = ticks(chart)
    plot.focus()
    page.keyboard.press("ArrowRight")
    used["tip_of_keys"] = tip.inner_text() if tip.is_visible() else ""
    page.keyboard.press("+")
    used["zoomed_by_keys"] = ticks(chart)
    page.keyboard.press("Escape")
    used["reset_by_keys"] = ticks(chart)
    page.select_option("#axis", "time")
    used["over_time"] = ticks(chart)
    page.locator("#log").check()
    page.locator("#smooth").fill("0.5")
    while (closed := page.locator("details:not([open]) > summary")).count():
        closed.first.click()
    used["details"] = page.locator("body").inner_text()
    used["width_with_details"] = page.evaluate("document.documentElement.scrollWidth")
    return used


def main(chromium, path, only_look=False, pictures=None):
    url = pathlib.Path(path).resolve().as_uri()
    result = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium)
        for name, (scheme, width, height) in VIEWS.items():
            page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": height})
            errors, requests = [], []
            page.on("console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None)
            page.on("pageerror", lambda error: errors.append(str(error)))
            page.on("request", lambda request: requests.append(request.url))
            page.goto(url)
            page.wait_for_selector(".chart .plot .axis", state="attached")
            result[name] = {"seen": seen(page)}
            if pictures:
                page.screenshot(path=f"{pictures}/{name}.png", full_page=True)
            if not only_look:
                result[name]["used"] = use(page)
            if pictures:
                page.screenshot(path=f"{pictures}/{name}_used.png", full_page=True)
            result[name].update(errors=errors, requests=[request for request in requests if request != url])
            page.close()
        browser.close()
    print(json.dumps(result))


if __name__ == "__main__":
    given = argparse.ArgumentParser()
    given.add_argument("chromium")
    given.add_argument("path")
    given.add_argument("--only-look", action="store_true")
    given.add_argument("--pictures")
    main(**vars(given.parse_args()))
