"""Steps of the suite that set up: the table of verbs, signing in, a pool and its spaces."""

import json
import os
import pathlib
import re
import shutil
import subprocess

from console_page import POOL, Console, eventually, expect

MIB = 1 << 20
FIRST_PAGE_BYTES_MAX = 150 * 1024
ROOT = pathlib.Path(__file__).resolve().parents[2]


class Setup:
    """From the first sign-in to a pool with spaces."""

    def table_of_verbs(self):
        """The table of verbs that the console has is that of the API."""
        api = json.loads((ROOT / "docs/api/openapi.json").read_text())
        known = {
            op["operationId"]: (path.removeprefix("/v1"), op["x-dolmen"]["role"])
            for path, ops in api["paths"].items()
            for op in ops.values()
        }
        answer = self.console.context.request.get(f"{self.arguments.base}/console/verbs.js")
        found = {
            name: (path, role)
            for name, path, role in re.findall(
                r"^  (\w+): \['([^']+)', '(\w+)'\],$", answer.text(), re.MULTILINE
            )
        }
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
            fill = {
                "user": self.arguments.user,
                "password": self.arguments.password,
                "again": self.arguments.password,
            }
            for code, again, end in [
                ("WRONG-CODE", None, False),
                ("WRONG-CODE", "another password", False),
                (None, None, True),
            ]:
                code = (
                    code
                    or subprocess.run(
                        ["sh", "-c", self.arguments.code_command], capture_output=True, text=True, check=True
                    ).stdout.split()[-1]
                )
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
        self.console = Console(self.browser, self.arguments).sign_in(
            self.arguments.user, self.arguments.password
        )
        total = sum(self.console.bytes.values())
        expect("the first page has at most 150 KiB", 0 < total <= FIRST_PAGE_BYTES_MAX, self.console.bytes)
        self.say(
            f"a wrong password is refused, the right one signs in; the first page has {total} bytes in {len(self.console.bytes)} files"
        )
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
        expect(
            "the focus is back at its button",
            console.page.evaluate("document.activeElement.textContent") == "New pool",
        )
        console.button("New pool").click()
        levels = []
        for path in paths:
            console.dialog.locator(f"input[value='{path}']").check()
            levels.append(
                eventually(
                    "the table of protections is shown",
                    10,
                    lambda: console.dialog.locator("table").inner_text(),
                )
            )
            eventually(
                "the table follows the disks",
                10,
                lambda: console.dialog.locator("table").inner_text()
                != (levels[-2] if len(levels) > 1 else ""),
            )
        next_button = console.button("Next", console.dialog)
        expect("three disks are enough to go on", next_button.is_enabled())
        console.dialog.locator(f"input[value='{foreign}']").check()
        expect("a disk that holds something needs its name", next_button.is_disabled())
        console.dialog.get_by_label("What it holds is lost").fill("bay4")
        expect("with its name typed it may be taken", next_button.is_enabled())
        self.swapped(foreign, next_button)
        eventually(
            "parity over four disks is offered",
            10,
            lambda: re.search(r"dual parity.*[0-9.]+ GiB", console.dialog.locator("table").inner_text()),
        )
        self.is_well("the choice of disks")
        console.shot("wizard-pool-light", False)
        console.next("What is it called?")
        console.dialog.locator("input[name=name]").fill(POOL)
        console.next("What will happen")
        plan = console.plan()
        expect(
            "the plan says that the content is lost for good",
            "destroying what it holds" in plan and plan.endswith("no"),
            plan,
        )
        line = console.command()
        expect("the command names what is lost", f"--destroy {foreign}" in line, line)
        self.is_well("the plan of a pool")
        console.agree("Create the pool")
        console.done()
        console.sees("the pool", "What still fits")
        self.say("the wizard makes a pool, and what is lost was typed")

    def swapped(self, path, next_button):
        """Another disk comes to have the path of one whose name was typed: the choice and the name have ended."""
        console = self.console
        # The name is on another file now, as the name of a device is after it was plugged in again.
        other = f"{path}.other"
        shutil.copyfile(path, other)
        os.replace(other, path)
        eventually("the choice has ended", 20, lambda: not console.dialog.locator(f"input[value='{path}']").is_checked())
        console.sees("why", "is not the device any more", selector="dialog[open]")
        console.dialog.locator(f"input[value='{path}']").check()
        expect("the typed name has ended", next_button.is_disabled())
        console.dialog.get_by_label("What it holds is lost").fill("bay4")
        expect("the other disk is taken by its name", next_button.is_enabled())

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
            # Messages of earlier ones may lie in the dialog as well.
            console.sees(f"{name} is made", f"{POOL}/{name} is made", 60, "dialog[open] .dialog-body")
            self.is_well("the result")
            console.button("Close", console.dialog).last.click()
            console.done()
        console.show("spaces")
        console.sees("the spaces", f"{POOL}/archive")
        self.say(f"the wizard makes {len(wanted)} spaces and volumes")
