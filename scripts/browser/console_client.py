"""The web console in a browser: what its users do, from the first sign-in to a replaced disk.

Runs against a server that is there. The daemon behind it has to see the files of the folder `--disks` as devices, and has no
pool `browser`. `--stop` and `--start` are commands that end the daemon and start it again. See --help.
Each line says what holds; the first that does not ends the program with 1.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import time
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import sync_playwright

from console_load import Load
from console_page import FORMS, Console, Failure, eventually, expect

POOL = "browser"
MIB = 1 << 20
FIRST_PAGE_BYTES_MAX = 150 * 1024
ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ["home", "disks", f"disks/{POOL}/0", "pools", f"pools/{POOL}", "spaces", f"spaces/{POOL}/vm", "volumes", "shares", "jobs", "events", "performance", "settings"]


def arguments_of():
    environment = os.environ.get
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", required=True, help="address of the server, such as https://127.0.0.1:8443")
    parser.add_argument("--user", default=environment("DOLMEN_CONSOLE_USER", "anna"))
    parser.add_argument("--password", default=environment("DOLMEN_CONSOLE_PASSWORD", "correct horse battery"))
    parser.add_argument("--code-command", help="prints the code of the first sign-in")
    parser.add_argument("--disks", required=True, type=pathlib.Path, help="folder for files that the daemon sees as devices")
    parser.add_argument("--stop", required=True, help="command that ends the daemon")
    parser.add_argument("--start", required=True, help="command that starts the daemon")
    parser.add_argument("--mount", type=pathlib.Path, help="folder for mount points; without it there is no test of volumes")
    parser.add_argument("--dolmen", help="the program dolmen; without it command lines are not run")
    parser.add_argument("--socket", default=environment("DOLMEN_SOCKET", ""))
    parser.add_argument("--axe", default=environment("DOLMEN_AXE"), help="axe.min.js; without it nothing is asked of axe")
    parser.add_argument("--shots", help="folder for screenshots")
    parser.add_argument("--chromium", default=environment("DOLMEN_CHROMIUM"), help="the browser, where it is not that of Playwright")
    return parser.parse_args()


class Suite:
    """All steps, in order; each leaves what the next one needs."""

    def __init__(self, browser, arguments):
        self.browser = browser
        self.arguments = arguments
        self.console = None
        self.started = time.monotonic()
        self.count = 0

    def say(self, what):
        self.count += 1
        print(f"   ok: {what} ({time.monotonic() - self.started:.0f} s)", flush=True)

    def disk(self, name, mib, content=b""):
        path = self.arguments.disks / name
        with open(path, "wb") as file:
            file.write(content)
            file.truncate(mib * MIB)
        return str(path)

    def is_well(self, what):
        self.console.is_accessible(what)
        self.console.fits(what)

    # --- steps ---

    def table_of_verbs(self):
        """The table of verbs that the console has is that of the API."""
        api = json.loads((ROOT / "docs/api/openapi.json").read_text())
        known = {op["operationId"]: (path.removeprefix("/v1"), op["x-dolmen"]["role"]) for path, ops in api["paths"].items() for op in ops.values()}
        answer = self.console.context.request.get(f"{self.arguments.base}/console/verbs.js")
        found = {name: (path, role) for name, path, role in re.findall(r"^  (\w+): \['([^']+)', '(\w+)'\],$", answer.text(), re.MULTILINE)}
        expect("the console has a table of verbs", len(found) > 50, len(found))
        wrong = {name: (each, known.get(name)) for name, each in found.items() if known.get(name) != each}
        expect("paths and roles are those of the API", not wrong, wrong)
        self.say(f"the {len(found)} verbs of the console are those of the API")

    def first_sign_in(self):
        """A wrong code is refused, the right one makes an administrator; afterwards the user signs in."""
        console = self.console
        console.open()
        console.page.wait_for_selector("form input")
        if console.page.locator("input[name=code]").count():
            expect("a first sign-in needs --code-command", self.arguments.code_command)
            console.is_accessible("the first sign-in")
            console.shot("first-sign-in-light")
            fill = {"user": self.arguments.user, "password": self.arguments.password, "again": self.arguments.password}
            for code, again, end in [("WRONG-CODE", None, False), ("WRONG-CODE", "another password", False), (None, None, True)]:
                code = code or subprocess.run(["sh", "-c", self.arguments.code_command], capture_output=True, text=True, check=True).stdout.split()[-1]
                for name, value in {**fill, "code": code, "again": again or fill["again"]}.items():
                    console.page.fill(f"input[name={name}]", value)
                console.page.click("button[type=submit]")
                if not end:
                    console.page.wait_for_selector("[role=alert]")
            console.page.wait_for_selector(".hero")
            self.say("the first sign-in takes the code alone, and makes an administrator")
            console.page.locator(".user-menu summary").click()
            console.button("Sign out").click()
            console.page.wait_for_selector("input[name=password]")
        console.is_accessible("the sign-in")
        console.shot("sign-in-light")
        console.page.fill("input[name=user]", self.arguments.user)
        console.page.fill("input[name=password]", "wrong password here")
        console.page.click("button[type=submit]")
        console.page.wait_for_selector("[role=alert]")
        console.close()
        self.console = Console(self.browser, self.arguments).sign_in(self.arguments.user, self.arguments.password)
        total = sum(self.console.bytes.values())
        expect("the first page has at most 150 KiB", 0 < total <= FIRST_PAGE_BYTES_MAX, self.console.bytes)
        self.say(f"a wrong password is refused, the right one signs in; the first page has {total} bytes in {len(self.console.bytes)} files")
        self.console.shot("home-empty-light")

    def new_pool(self):
        """Four disks, one of which holds something: that one wants its name typed."""
        console = self.console
        paths = [self.disk(f"bay{number}", mib) for number, mib in [(1, 3072), (2, 3072), (3, 2048)]]
        foreign = self.disk("bay4", 2048, os.urandom(MIB))
        console.show("pools")
        console.button("New pool").click()
        console.page.wait_for_selector(f"dialog[open] input[value='{foreign}']")
        console.focus_stays()
        console.page.keyboard.press("Escape")
        console.done()
        expect("the focus is back at its button", console.page.evaluate("document.activeElement.textContent") == "New pool")
        console.button("New pool").click()
        levels = []
        for path in paths:
            console.dialog.locator(f"input[value='{path}']").check()
            levels.append(eventually("the table of protections is shown", 10, lambda: console.dialog.locator("table").inner_text()))
            eventually("the table follows the disks", 10, lambda: console.dialog.locator("table").inner_text() != (levels[-2] if len(levels) > 1 else ""))
        next_button = console.button("Next", console.dialog)
        expect("three disks are enough to go on", next_button.is_enabled())
        console.dialog.locator(f"input[value='{foreign}']").check()
        expect("a disk that holds something needs its name", next_button.is_disabled())
        console.dialog.get_by_label("What it holds is lost").fill("bay4")
        expect("with its name typed it may be taken", next_button.is_enabled())
        eventually("parity over four disks is offered", 10, lambda: re.search(r"dual parity.*[0-9.]+ GiB", console.dialog.locator("table").inner_text()))
        self.is_well("the choice of disks")
        console.shot("wizard-pool-light", False)
        console.next("What is it called?")
        console.dialog.locator("input[name=name]").fill(POOL)
        console.next("What will happen")
        plan = console.plan()
        expect("the plan says that the content is lost for good", "destroying what it holds" in plan and plan.endswith("no"), plan)
        line = console.command()
        expect("the command names what is lost", f"--destroy {foreign}" in line, line)
        self.is_well("the plan of a pool")
        console.agree("Create the pool")
        console.done()
        console.sees("the pool", "What still fits")
        self.say("the wizard makes a pool, and what is lost was typed")

    def new_spaces(self):
        """A mirror space, a parity space, and where volumes can be mounted, a volume."""
        console = self.console
        wanted = [("space", "mirror-2-0", "vm", "512"), ("space", "parity-1-1", "archive", "256")]
        if self.arguments.mount:
            wanted.append(("files", "mirror-2-0", "home", "400"))
        for purpose, level, name, mib in wanted:
            console.show("spaces")
            console.button("New space or volume").click()
            console.dialog.locator(f"input[value={purpose}]").check()
            if name == "vm":
                self.is_well("the purposes")
                console.shot("wizard-space-light", False)
            console.next("What is it to survive?")
            console.dialog.locator(f"input[value={level}]").check()
            console.next("How large is it?")
            console.dialog.locator("input[name=name]").fill(name)
            console.dialog.locator("input[name=size]").fill(mib)
            console.dialog.locator("select[aria-label^='Unit']").select_option("MiB")
            if purpose == "files":
                console.dialog.locator("input[name=mount]").fill(str(self.arguments.mount / name))
            self.is_well("the size of a space")
            console.next("What will happen")
            console.plan()
            console.command()
            console.agree("Create it")
            console.page.wait_for_selector("dialog[open] .step-title:has-text('What came of it')")
            console.sees(f"{name} is made", "is made", 60, "dialog[open]")
            self.is_well("the result")
            console.button("Close", console.dialog).last.click()
            console.done()
        console.show("spaces")
        console.sees("the spaces", f"{POOL}/archive")
        self.say(f"the wizard makes {len(wanted)} spaces and volumes")

    def live_load(self):
        """A space is served, and its load moves the charts."""
        console = self.console
        console.show(f"spaces/{POOL}/vm")
        console.button("Serve").click()
        console.command()
        console.agree("Serve it")
        console.done()
        uri = eventually("the address is shown", 15, lambda: re.search(r"nbd\+unix:\S+", console.text()))[0]
        socket = parse_qs(urlsplit(uri).query)["socket"][0]
        self.export = (socket, f"{POOL}/vm")
        with Load(*self.export) as load:
            console.show("performance")
            path = console.page.locator(".line-write").first
            seen = set()
            eventually("the chart of throughput moves", 30, lambda: (seen.add(path.get_attribute("d")), len(seen) > 4)[1])
            eventually("the table tells of writes", 15, lambda: re.search(r"[1-9][0-9.]* [KM]iB/s", console.page.locator("table").first.inner_text()))
            eventually("latencies are shown", 15, lambda: re.search(r"\d (µs|ms)", console.page.locator("table").first.inner_text()))
            time.sleep(4)
            console.shot("performance-load-light")
            self.is_well("performance")
            console.show("home")
            time.sleep(2)
            console.shot("home-load-light")
        expect("the load did something", load.rounds > 10, load.rounds)
        self.say("charts and tables follow the load of a served space")

    def changes_of_spaces(self):
        """Limits, growth, conversion with its job, the trash with restore, and a purge with its name typed."""
        console = self.console
        console.show(f"spaces/{POOL}/vm")
        console.menu(f"More for {POOL}/vm", "Limits")
        console.dialog.locator("input[name=iops_max]").fill("5000")
        console.command()
        console.agree("Save")
        console.done()
        console.sees("the limit", "5,000 requests/s")
        console.button("Grow").click()
        console.dialog.locator("input[name=size]").fill("768")
        console.command()
        console.agree("Change the size")
        console.done()
        console.sees("the size", "768 MiB")
        console.menu(f"More for {POOL}/vm", "Convert")
        eventually("the levels are offered", 10, lambda: console.dialog.locator("select[name=level] option").count() > 3)
        console.dialog.locator("select[name=level]").select_option("mirror-3-0")
        console.plan()
        console.command()
        self.is_well("a conversion")
        console.agree("Convert")
        console.done()
        console.sees("the protection", "mirror, 3 copies", 60)
        console.show("jobs")
        console.sees("the job", "convert")
        console.show(f"spaces/{POOL}/archive")
        console.menu(f"More for {POOL}/archive", "Delete")
        console.command()
        console.agree("Into the trash")
        console.done()
        console.show("spaces")
        console.sees("the trash", "Trash")
        console.button("Restore").click()
        console.command()
        console.agree("Restore")
        console.done()
        eventually("the trash is empty", 15, lambda: "Trash" not in console.text())
        console.menu(f"More for {POOL}/archive", "Delete for good")
        console.command()
        console.agree("Delete for good", typed="archive")
        console.done()
        eventually("the space is gone", 15, lambda: f"{POOL}/archive" not in console.text())
        self.say("limits, growth, conversion, trash, restore and purge do what they say")

    def volume(self):
        """Trim, a quota, a policy of deduplication, and a share that says what is missing."""
        if not self.arguments.mount:
            return
        console = self.console
        console.show(f"volumes/{POOL}/home")
        console.sees("the volume", "mounted")
        console.button("Trim").click()
        console.command()
        console.agree("Trim")
        console.done()
        console.button("New quota").click()
        console.dialog.locator("input[name=folder]").fill("docs")
        console.dialog.locator("input[name=size]").fill("1")
        console.agree("Save")
        alert = console.dialog.locator("[role=alert]")
        eventually("the quota is set, or refused with a reason", 30, lambda: not console.page.locator("dialog[open]").count() or alert.count())
        if console.page.locator("dialog[open]").count():
            print(f"skipped: a quota ({' '.join(alert.inner_text().split())})")
            console.button("Cancel", console.dialog).click()
            console.done()
        else:
            console.sees("the quota", "1 GiB")
        console.button("Set a policy").click()
        console.command()
        console.agree("Save")
        console.done()
        console.sees("the policy", "weekly sunday 02:00")
        self.is_well("a volume")
        console.shot("volume-light")
        console.button("New share").click()
        console.dialog.locator("input[name=name]").fill("docs")
        console.dialog.locator("input[name=accounts]").fill("anna:rw")
        eventually("the plan of a share, or why there is none", 20, lambda: console.dialog.locator(".plan, [role=alert]").count())
        self.is_well("a new share")
        console.button("Cancel", console.dialog).click()
        console.done()
        self.say("a volume is trimmed, and gets a policy of deduplication")

    def add_disks(self):
        """One disk more: what fits before and after, and the rebalance behind it."""
        console = self.console
        path = self.disk("bay5", 3072)
        console.show(f"pools/{POOL}")
        console.button("Add disks").click()
        console.dialog.locator(f"input[value='{path}']").check()
        eventually("before and after are shown", 15, lambda: "Afterwards" in console.dialog.inner_text())
        self.is_well("the choice of disks to add")
        console.next("What are they for?")
        console.next("What will happen")
        plan = console.plan()
        expect("the plan tells what becomes usable", "→" in plan, plan)
        console.command()
        console.agree("Add the disks")
        console.page.wait_for_selector("dialog[open] .step-title:has-text('What is going on')")
        console.shot("wizard-add-light", False)
        console.button("Close", console.dialog).last.click()
        console.done()
        console.show("disks")
        console.sees("the disk", "bay5")
        self.say("the wizard adds a disk, with the room before and afterwards")

    def two_browsers(self):
        """A viewer in another browser sees what happens, and no button; names are text, whatever they hold."""
        console = self.console
        console.show("settings")
        console.button("New user").click()
        for name, value in [("user", "vera"), ("password", "another good password")]:
            console.dialog.locator(f"input[name={name}]").fill(value)
        console.button("Create the user", console.dialog).click()
        console.done()
        console.sees("the user", "vera")
        viewer = Console(self.browser, self.arguments).sign_in("vera", "another good password")
        for path in ["pools", f"pools/{POOL}", f"disks/{POOL}/0", "spaces", f"spaces/{POOL}/vm", "jobs"]:
            viewer.show(path)
            buttons = viewer.page.locator("main button:visible, main summary:visible").all_inner_texts()
            expect(f"a viewer has nothing to press on {path}", not buttons, buttons)
        viewer.show("disks")
        bay = "<img src=x onerror=alert(1)>"
        console.show(f"disks/{POOL}/0")
        console.menu("More for bay1", "Name the bay")
        console.dialog.locator("input[type=text]").fill(bay)
        console.command()
        console.agree("Save")
        console.done()
        viewer.sees("the name in the other browser", bay)
        expect("a name is text", viewer.page.locator("main img").count() == 0)
        console.menu(f"More for {bay}", "Name the bay")
        console.dialog.locator("input[type=text]").fill("Shelf 1, bay 1")
        console.agree("Save")
        console.done()
        viewer.sees("the next name", "Shelf 1, bay 1")
        viewer.close()
        self.say("two browsers show the same at once, and a viewer has nothing to press")

    def expired_session(self):
        """The session ends under the page: the password is asked for again, and the page stays."""
        console = self.console
        console.show(f"disks/{POOL}/1")
        console.page.evaluate("window.stays = true")
        console.context.clear_cookies()
        console.button("Locate").click()
        console.page.wait_for_selector("dialog[open] input[name=password]")
        console.is_accessible("signing in again")
        dialog = console.page.locator("dialog[open]", has=console.page.locator("input[name=password]"))
        dialog.locator("input[name=password]").fill(self.arguments.password)
        dialog.locator("button[type=submit]").click()
        console.page.wait_for_selector("dialog[open] input[name=password]", state="detached")
        console.plan()
        console.button("Cancel", console.dialog).click()
        console.done()
        expect("the page was not loaded again", console.page.evaluate("window.stays === true && location.hash.endsWith('/1')"))
        console.sees("the page goes on", "SMART")
        self.say("an expired session asks for the password and keeps the page")

    def daemon_restarts(self):
        """The daemon ends and comes back under the page."""
        console = self.console
        console.show("home")
        console.page.evaluate("window.stays = true")
        subprocess.run(["sh", "-c", self.arguments.stop], check=True)
        console.page.wait_for_selector(".banner:has-text('The daemon does not answer')", timeout=20000)
        console.is_accessible("the banner")
        console.shot("banner-light")
        subprocess.run(["sh", "-c", self.arguments.start], check=True)
        console.page.wait_for_selector(".banner", state="detached", timeout=30000)
        eventually("the page tells of the new daemon", 30, lambda: re.search(r"running for \d+ s", console.text()))
        expect("the page was not loaded again", console.page.evaluate("window.stays === true"))
        self.say("the page survives a restart of the daemon")

    def failed_disk(self):
        """A disk fails while the page is open and clients write; then it is replaced."""
        console = self.console
        console.show(f"spaces/{POOL}/vm")
        if console.button("Serve").count():
            console.button("Serve").click()
            console.agree("Serve it")
            console.done()
        console.show("disks")
        console.page.evaluate("window.stays = true")
        with Load(*self.export):
            victim = self.arguments.disks / "bay2"
            os.truncate(victim, 0)
            victim.unlink()
            console.page.wait_for_selector(".bay.unhealthy", timeout=60000)
            eventually("the health of all is told", 60, lambda: console.text(".top-health") != "healthy")
            console.shot("disk-failed-light")
            self.is_well("a failed disk")
            console.show("home")
            console.shot("home-failed-light")
            self.is_well("home with a failed disk")
            self.replace()
        expect("the page was not loaded again", console.page.evaluate("window.stays === true"))
        self.say("a disk fails under load and is replaced in the console")

    def replace(self):
        console = self.console
        fresh = self.disk("bay6", 3072)
        console.show(f"pools/{POOL}")
        console.button("Replace a disk").click()
        expect("nothing is chosen yet", console.button("Next", console.dialog).is_disabled())
        console.dialog.locator(".option", has_text="bay2").locator("input").check()
        self.is_well("the choice of the old disk")
        console.shot("wizard-replace-light", False)
        console.next("What takes its place?")
        console.dialog.locator(f"input[value='{fresh}']").check()
        console.next("What will happen")
        console.plan()
        console.command()
        console.agree("Replace the disk")
        console.page.wait_for_selector("dialog[open] .step-title:has-text('How far it is')")
        console.shot("wizard-replace-progress-light", False)
        eventually("the replacement ends", 180, lambda: "may be taken out" in console.dialog.inner_text())
        self.is_well("the progress of a replacement")
        console.button("Close", console.dialog).last.click()
        console.done()
        console.show("home")
        eventually("all is well again", 120, lambda: console.page.locator(".hero.healthy").count())

    def all_forms(self):
        """Every page in light, in dark and on a phone: axe, width and a picture."""
        pages = PAGES + ([f"volumes/{POOL}/home"] if self.arguments.mount else [])
        with Load(*self.export):
            for form in FORMS:
                console = Console(self.browser, self.arguments, form).sign_in(self.arguments.user, self.arguments.password)
                for path in pages:
                    console.show(path)
                    time.sleep(1)
                    console.is_accessible(f"{path} ({form})")
                    console.fits(f"{path} ({form})")
                    console.shot(f"{path.replace('/', '-')}-{form}")
                if form == "phone":
                    console.page.locator(".nav .more").click()
                    console.is_accessible("the open menu of a phone")
                    console.shot("menu-phone", False)
                    console.page.get_by_role("link", name="Pools", exact=True).click()
                    console.sees("a page from the menu", "New pool")
                    console.button("New pool").click()
                    time.sleep(1)
                    console.is_accessible("a wizard on a phone")
                    console.shot("wizard-phone", False)
                console.close()
        self.say(f"{len(pages)} pages in {len(FORMS)} forms have no serious finding and are not too wide")

    def destroy_pool(self):
        """The pool goes, with its name typed."""
        console = self.console
        if self.arguments.mount:
            console.show(f"volumes/{POOL}/home")
            console.menu(f"More for {POOL}/home", "Delete")
            console.command()
            console.agree("Into the trash")
            console.done()
        console.show(f"spaces/{POOL}/vm")
        console.button("Stop serving").click()
        console.agree("Stop serving")
        console.done()
        console.show(f"pools/{POOL}")
        console.menu(f"More for {POOL}", "Destroy")
        console.command()
        console.agree("Destroy the pool", typed=POOL)
        console.done()
        eventually("the pool is gone", 15, lambda: f"#/pools/{POOL}" not in console.page.inner_html("main"))
        console.close()
        self.say("the pool is destroyed once its name was typed")

    def run(self):
        self.console = Console(self.browser, self.arguments)
        for step in [self.table_of_verbs, self.first_sign_in, self.new_pool, self.new_spaces, self.live_load, self.changes_of_spaces, self.volume, self.add_disks, self.two_browsers, self.expired_session,
                     self.daemon_restarts, self.failed_disk, self.all_forms, self.destroy_pool]:
            try:
                step()
            except Exception as error:
                self.console.shot("failed")
                raise Failure(f"{step.__name__}: {error}; the browser said {self.console.complaints}") from error


def main():
    arguments = arguments_of()
    if arguments.shots:
        os.makedirs(arguments.shots, exist_ok=True)
    with sync_playwright() as playwright:
        more = {"executable_path": arguments.chromium} if arguments.chromium else {}
        # As root, a browser has no sandbox of its own.
        browser = playwright.chromium.launch(args=["--no-sandbox"] if os.geteuid() == 0 else [], **more)
        suite = Suite(browser, arguments)
        try:
            suite.run()
        except Failure as failure:
            sys.exit(f"FAILED in {failure}")
        finally:
            browser.close()
        print(f"console: {suite.count} results, none missing, {time.monotonic() - suite.started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
