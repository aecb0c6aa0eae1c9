"""One browser on the console: signing in, pages, dialogs, and what has to hold on each of them."""

import re
import subprocess
import time

# The pool that the suite makes and destroys.
POOL = "browser"
FORMS = {
    "light": {"viewport": {"width": 1280, "height": 860}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 860}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 360, "height": 740}, "color_scheme": "light", "device_scale_factor": 2},
}
# What a browser logs by itself when an answer is no success; the suite causes some of those.
EXPECTED = re.compile(r"Failed to load resource|net::ERR_")
# Commands about accounts and alerts, which have no dry run.
OF_WEB = re.compile(
    r"dolmen-web (user (add|role|password|remove)|token (create|remove)|session end|alert (silence|unsilence|test))( .*)?"
)
# What dolmen ends with when a command line makes no sense.
USAGE = 2
# How long a dialog that has a field may take for its plan.
FIELD_SECONDS = 3
SERIOUS = ("serious", "critical")


class Failure(Exception):
    """What does not hold."""


def expect(what, is_so, found=None):
    if not is_so:
        raise Failure(what if found is None else f"{what}; found {found!r}")


def eventually(what, seconds, call):
    """Waits until the call returns something, and returns that."""
    end = time.monotonic() + seconds
    while True:
        found = call()
        if found:
            return found
        if time.monotonic() > end:
            raise Failure(f"{what}: not within {seconds} s")
        time.sleep(0.1)


class Console:
    """A browser of its own, with one page."""

    def __init__(self, browser, arguments, form="light"):
        self.arguments = arguments
        self.context = browser.new_context(**FORMS[form], ignore_https_errors=True)
        self.context.set_default_timeout(30000)
        self.page = self.context.new_page()
        self.complaints = []
        self.bytes = {}
        self.page.on(
            "console", lambda said: self.complain(said.text) if said.type in ("error", "warning") else None
        )
        self.page.on("pageerror", lambda error: self.complain(str(error)))
        self.page.on("response", self.count)

    def complain(self, text):
        if not EXPECTED.search(text):
            self.complaints.append(text)

    def count(self, answer):
        path = "/" + answer.url.split("/", 3)[3]
        # A file that the browser has already is answered without its content.
        if answer.status == 200 and (path == "/" or path.startswith("/console/")):
            self.bytes[path] = int(answer.headers.get("content-length", 0)) or len(answer.body())

    def close(self):
        self.context.close()
        expect("the browser has nothing to complain about", not self.complaints, self.complaints)

    # --- signing in ---

    def open(self, path=""):
        self.page.goto(f"{self.arguments.base}/{path}")

    def sign_in(self, user, password):
        self.open()
        self.page.fill("input[name=user]", user)
        self.page.fill("input[name=password]", password)
        self.page.click("button[type=submit]")
        self.page.wait_for_selector(".hero")
        return self

    # --- pages ---

    def show(self, path):
        """Opens a page of the console as a link does, without loading it again."""
        self.page.evaluate("path => { location.hash = `#/${path}`; }", path)
        self.page.wait_for_selector("main h1:not(:has-text('Loading'))", state="attached")
        eventually(
            f"page {path} is shown",
            10,
            lambda: "Loading" not in self.page.inner_text("main")
            and "cannot show" not in self.page.inner_text("main"),
        )

    def text(self, selector="main"):
        return self.page.inner_text(selector)

    def sees(self, what, text, seconds=15, selector="main"):
        eventually(f"{what}: '{text}' is shown", seconds, lambda: text in self.page.inner_text(selector))

    def button(self, name, scope=None):
        return (scope or self.page).get_by_role("button", name=name, exact=True)

    def menu(self, label, entry, scope=None):
        """Chooses an entry of the menu with that label."""
        (scope or self.page).locator(f"summary[aria-label='{label}']").click()
        (scope or self.page).locator("details[open] .menu").get_by_role(
            "button", name=entry, exact=True
        ).click()

    # --- dialogs ---

    @property
    def dialog(self):
        return self.page.locator("dialog[open]").last

    def next(self, heading):
        self.button("Next", self.dialog).click()
        self.page.wait_for_selector(f"dialog[open] .step-title:has-text('{heading}')")

    def plan(self):
        self.dialog.locator(".plan").wait_for()
        return self.dialog.locator(".plan").inner_text()

    def run(self, line):
        """Runs a command line of a dialog as a dry run."""
        expect("the command line is one of dolmen", line.startswith("dolmen "), line)
        words = ["sh", "-c", f'"$0" {line.removeprefix("dolmen ")} -n', self.arguments.dolmen]
        environment = {"PATH": "/usr/bin:/bin", "DOLMEN_SOCKET": self.arguments.socket}
        return subprocess.run(words, capture_output=True, text=True, env=environment, check=False)

    def command(self):
        """The command line that the dialog shows; as a dry run it does well, where there is a program for that."""
        line = self.dialog.locator(".command-text").inner_text()
        if self.arguments.dolmen:
            result = self.run(line)
            expect(f"'{line} -n' is a command", result.returncode == 0, result.stderr or result.stdout)
        return line

    def understood(self):
        """The dialog has a plan or a reason, or wants more; its command line makes sense, whatever comes of it."""
        parts = ".plan, [role=alert], input, select"
        eventually("the dialog has a plan, a reason or a field", 20, self.dialog.locator(parts).count)
        # A dialog that wants a field first has neither a plan nor a reason, and no command before the field is filled.
        end = time.monotonic() + FIELD_SECONDS
        while not self.dialog.locator(".plan, [role=alert]").count():
            if time.monotonic() > end:
                return
            time.sleep(0.1)
        self.has_command()

    def has_command(self):
        """The dialog shows exactly one command line, and the program understands it."""
        lines = self.dialog.locator(".command-text").all_inner_texts()
        expect("the dialog shows the command that does the same", len(lines) == 1, [self.dialog.inner_text(), lines])
        line = lines[0]
        if line.startswith("dolmen-web "):
            expect("it is a command of dolmen-web", OF_WEB.fullmatch(line), line)
        elif self.arguments.dolmen:
            result = self.run(line)
            expect(f"'{line} -n' makes sense", result.returncode != USAGE, result.stderr)

    def agree(self, label, typed=None):
        """Presses the button of a dialog once its plan is there; a name is typed first, and needed."""
        button = self.button(label, self.dialog)
        if typed:
            self.plan()
            expect(f"'{label}' needs the name typed", button.is_disabled())
            self.dialog.locator("input[name=typed]").fill(typed)
        eventually(f"'{label}' can be pressed", 20, button.is_enabled)
        button.click()

    def done(self):
        """Waits until the dialog has closed; one that stays open says why."""
        try:
            self.page.wait_for_selector("dialog[open]", state="detached")
        except Exception as error:
            raise Failure(f"the dialog stays open: {self.dialog.inner_text()}") from error

    # --- what holds on each page ---

    def focus_stays(self):
        """The focus goes round in the open dialog, and never to the page below."""
        for _ in range(30):
            self.page.keyboard.press("Tab")
            is_in = self.page.evaluate(
                "() => { const a = document.activeElement; return a === document.body || !!a.closest('dialog'); }"
            )
            expect(
                "the focus stays in the dialog",
                is_in,
                self.page.evaluate("document.activeElement.outerHTML.slice(0, 200)"),
            )

    def is_accessible(self, what):
        """No serious finding of axe."""
        if not self.arguments.axe:
            return
        if not self.page.evaluate("'axe' in window"):
            # The policy of the page allows no inline script; the driver of the browser may still run one.
            with open(self.arguments.axe, encoding="utf-8") as source:
                self.page.evaluate(f"() => {{ {source.read()} }}")
        found = self.page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
        bad = [
            f"{each['id']}: {each['nodes'][0]['html'][:160]} {each['nodes'][0]['failureSummary'][:200]}"
            for each in found["violations"]
            if each["impact"] in SERIOUS
        ]
        expect(f"axe has no serious finding on {what}", not bad, bad)

    def fits(self, what):
        width, view = self.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        expect(f"{what} is not wider than the window", width <= view, [width, view])

    def shot(self, name, is_full=True):
        if self.arguments.shots:
            self.page.screenshot(path=f"{self.arguments.shots}/{name}.png", full_page=is_full)
