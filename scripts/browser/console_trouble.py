"""Steps of the suite in which something is in the way: another browser, an expired session, a restart, a failed disk."""

import os
import re
import subprocess
import time

from console_load import Load
from console_page import POOL, Console, eventually, expect


class Trouble:
    """What the page survives."""

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
        for name in ("Role of vera", "Remove vera"):
            console.button(name).click()
            console.has_command()
            console.page.keyboard.press("Escape")
            console.done()
        viewer = Console(self.browser, self.arguments).sign_in("vera", "another good password")
        for path in ["pools", f"pools/{POOL}", f"disks/{POOL}/0", "spaces", f"spaces/{POOL}/vm", "jobs"]:
            viewer.show(path)
            # A fold shows more, and asks for nothing.
            pressed = "main button:visible, main summary:visible:not(.fold > summary)"
            buttons = viewer.page.locator(pressed).all_inner_texts()
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
        console.show("settings")
        console.button("End the session of vera").click()
        console.has_command()
        console.button("End it", console.dialog).click()
        console.done()
        viewer.page.wait_for_selector("dialog[open] input[name=password]")
        viewer.close()
        self.say(
            "two browsers show the same at once; a viewer has nothing to press, and its session can be ended"
        )

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
        expect(
            "the page was not loaded again",
            console.page.evaluate("window.stays === true && location.hash.endsWith('/1')"),
        )
        console.sees("the page goes on", "SMART")
        self.say("an expired session asks for the password and keeps the page")

    def another_user(self):
        """A change waits for a sign-in, and another user signs in: nothing is changed in the name of that one, and dialogs close."""
        console = self.console
        answer = console.context.request.post(
            f"{self.arguments.base}/account/users",
            headers={"Dolmen-Request": "1"},
            data={"user": "otto", "password": "another good password", "role": "operator"},
        )
        expect("a second user is added", answer.ok, answer.status)
        console.show(f"disks/{POOL}/1")
        console.button("Locate").click()
        console.plan()
        console.context.clear_cookies()
        console.button("Apply", console.dialog).click()
        console.page.wait_for_selector("dialog[open] input[name=password]")
        console.dialog.locator("input[name=user]").fill("otto")
        console.dialog.locator("input[name=password]").fill("another good password")
        console.dialog.locator("button[type=submit]").click()
        console.done()
        console.sees("what was dropped", "is dropped", selector="#toasts")
        console.sees("the user", "otto", selector=".user-menu")
        console.context.clear_cookies()
        console.sign_in(self.arguments.user, self.arguments.password)
        done = [
            entry
            for entry in self.document("/account/audit")["entries"]
            if entry["user"] == "otto" and entry["what"].startswith("LocateDisk")
        ]
        expect("nothing was done in the name of the other user", not done, done)
        self.say("a change that waited for a sign-in is dropped when another user signs in")

    def upgraded(self):
        """The server has other files of the console: the page says so, and is loaded again."""
        console = self.console

        def upgrade(route):
            answer = route.fetch()
            route.fulfill(response=answer, headers={**answer.headers, "dolmen-console": "0" * 16})

        console.show("home")
        expect("the page is of this server", not console.page.locator(".banner.old").count())
        console.page.route("**/account/**", upgrade)
        console.show("settings")
        console.page.wait_for_selector(".banner.old:has-text('The console was upgraded')")
        console.is_accessible("the banner of an upgrade")
        console.page.unroute("**/account/**")
        console.button("Load the page again").click()
        console.page.wait_for_selector(".banner.old", state="detached")
        console.page.route("**/console/page_events.js", lambda route: route.abort())
        console.show("home")
        console.page.evaluate("location.hash = '#/events'")
        console.page.wait_for_selector("main :text('This page could not be loaded.')")
        console.page.unroute("**/console/page_events.js")
        console.button("Load the page again").click()
        console.sees("the page that was not there", "Alerts")
        self.say("a page that stays open over an upgrade says so, and is loaded again")

    def daemon_restarts(self):
        """The daemon ends and comes back under the page."""
        console = self.console
        console.show("home")
        console.page.evaluate("window.stays = true")
        subprocess.run(["sh", "-c", self.arguments.stop], check=True)
        console.page.wait_for_selector(".banner:has-text('The daemon does not answer')", timeout=20000)
        console.sees("the age of what is shown", "ast known:")
        console.is_accessible("the banner")
        console.shot("banner-light")
        subprocess.run(["sh", "-c", self.arguments.start], check=True)
        console.page.wait_for_selector(".banner", state="detached", timeout=30000)
        eventually(
            "the page tells of the new daemon", 30, lambda: re.search(r"running for \d+ s", console.text())
        )
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
            # The charts have something to show then.
            time.sleep(8)
            victim = self.arguments.disks / "bay2"
            os.truncate(victim, 0)
            victim.unlink()
            console.page.wait_for_selector(".bay.unhealthy", timeout=60000)
            eventually("the health of all follows", 60, lambda: console.text(".top-health") != "healthy")
            console.shot("disk-failed-light")
            self.is_well("a failed disk")
            console.show("home")
            console.shot("home-failed-light", False)
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
        eventually(
            "the replacement ends", 180, lambda: "The replacement has ended" in console.dialog.inner_text()
        )
        self.is_well("the progress of a replacement")
        console.button("Close", console.dialog).last.click()
        console.done()
        console.show("home")
        eventually("all is well again", 120, lambda: console.page.locator(".hero.healthy").count())
