"""Steps of the suite for daily work: load, changes of spaces, volumes, more disks, the end of a pool."""

import re
import time
from urllib.parse import parse_qs, urlsplit

from console_load import Client, Load
from console_page import FORMS, POOL, Console, eventually, expect


class Operation:
    """What is done with a pool in use."""

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
            eventually(
                "the chart of throughput moves",
                30,
                lambda: (seen.add(path.get_attribute("d")), len(seen) > 4)[1],
            )
            eventually(
                "the table tells of writes",
                15,
                lambda: re.search(r"[1-9][0-9.]* [KM]iB/s", console.page.locator("table").first.inner_text()),
            )
            eventually(
                "latencies are shown",
                15,
                lambda: re.search(r"\d (µs|ms)", console.page.locator("table").first.inner_text()),
            )
            time.sleep(4)
            console.shot("performance-load-light")
            self.is_well("performance")
            console.show("home")
            time.sleep(2)
            console.shot("home-load-light")
        expect("the load did something", load.rounds > 10, load.rounds)
        self.say("charts and tables follow the load of a served space")

    def bench(self):
        """A space is measured by reads, and by writes with its name typed; a long benchmark is stopped; reports are shown."""
        console = self.console
        console.show("bench")
        select = console.page.locator("main select")
        select.nth(0).select_option(f"{POOL}/vm")
        self.bench_form("streaming", "1 8 32", "1")
        console.button("Measure …").click()
        # Without fio the dialog says what to install.
        eventually("a plan, or why there is none", 20, console.dialog.locator(".plan, [role=alert]").count)
        if "fio is not installed" in console.dialog.inner_text():
            print("skipped: a benchmark (missing: fio)")
            console.page.keyboard.press("Escape")
            console.done()
            return
        console.command()
        console.agree("Measure")
        console.done()
        console.sees("the benchmark under way", "Under way")
        console.sees("its step", "round 1 of 1", 30)
        console.shot("bench-running-light")
        self.is_well("a benchmark under way")
        console.page.get_by_role("link", name=f": {POOL}/vm").first.wait_for(timeout=60000)
        console.shot("bench-list-light")
        self.bench_form("database", "1 16", "1")
        console.button("Measure …").click()
        line = console.command()
        expect("the command has the name", line.endswith(f"--destroy={POOL}/vm"), line)
        self.is_well("the plan of a benchmark that writes")
        console.shot("bench-plan-light", False)
        console.agree("Measure", typed=f"{POOL}/vm")
        console.done()
        links = console.page.get_by_role("link", name=f": {POOL}/vm")
        eventually("the second report is listed", 120, lambda: links.count() == 2)
        links.first.click()
        console.sees("the points", "W/FLUSH")
        self.report = console.page.evaluate("() => location.hash.slice(2)")
        console.page.locator("main select").nth(1).select_option("every 32")
        eventually("flushes are counted", 15, lambda: re.search(r"\d+\.\d", console.page.locator("main table").inner_text()))
        expect("curves are drawn", console.page.locator("main .chart path.line").count() == 3, console.text())
        line = console.page.locator("main .command-text").inner_text()
        expect("the command shows the report", not self.arguments.dolmen or console.run(line).returncode == 0, line)
        console.shot("bench-report-light")
        self.is_well("a report")
        console.show("bench")
        self.bench_form("streaming", "1", "60")
        console.button("Measure …").click()
        console.agree("Measure")
        console.done()
        job = console.page.locator("article.job", has_text="measure")
        job.wait_for()
        console.button("Stop", job).click()
        console.command()
        console.agree("Stop the job")
        console.done()
        console.sees("the end of the benchmark", "was ended", 30)
        self.say("spaces are measured, a benchmark is stopped, and its reports are shown")

    def bench_form(self, profile, outstanding, seconds):
        console = self.console
        console.page.locator("main select").nth(2).select_option(profile)
        for name, value in (("size", "64"), ("rounds", "1"), ("runtime", seconds), ("outstanding", outstanding)):
            console.page.locator(f"main input[name={name}]").fill(value)
        console.page.locator("main select").nth(3).select_option("MiB")

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
        eventually(
            "the levels are offered",
            10,
            lambda: console.dialog.locator("select[name=level] option").count() > 3,
        )
        console.dialog.locator("select[name=level]").select_option("mirror-3-0")
        console.plan()
        console.command()
        self.is_well("a conversion")
        console.agree("Convert")
        console.done()
        console.sees("the protection", "mirror, 3 copies", 60)
        console.show("jobs")
        console.sees("the job", "convert")
        console.show("events")
        console.sees("events that came since the page was opened", f"space {POOL}/vm has 768 MiB")
        console.sees("events from before", f"pool {POOL} was made")
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
        eventually("the space is deleted", 15, lambda: f"{POOL}/archive" not in console.text())
        self.say("limits, growth, conversion, trash, restore and purge do what they say")

    def jobs(self):
        """A scrub that leaves the disks to clients is paused, resumed, given another priority and stopped."""
        console = self.console
        client = Client(*self.export)
        client.fill(256 << 20)
        client.socket.close()
        with Load(*self.export):
            console.show(f"pools/{POOL}")
            console.button("Scrub").click()
            console.command()
            console.agree("Scrub")
            console.done()
            console.show("jobs")
            job = console.page.locator("article.job", has_text="scrub")
            job.wait_for()
            console.button("Pause", job).click()
            console.command()
            console.agree("Pause")
            console.done()
            eventually("the job is paused", 20, lambda: "paused" in job.inner_text())
            self.is_well("a paused job")
            console.button("Resume", job).click()
            console.command()
            console.agree("Resume")
            console.done()
            eventually("the job runs again", 20, lambda: "running" in job.inner_text())
            console.button("Priority", job).click()
            console.dialog.locator("select").select_option("high")
            console.command()
            console.button("Cancel", console.dialog).click()
            console.done()
            eventually("the job tells how long it may take", 30, lambda: " left" in job.inner_text())
            console.shot("jobs-running-light")
            console.show("home")
            console.sees("the job on the home page", "scrub")
            console.shot("home-job-light")
            console.show("jobs")
            console.button("Stop", job).click()
            console.command()
            console.agree("Stop the job")
            console.done()
            console.sees("the end of the job", "called off", 30)
        self.say("a job is paused, resumed and stopped")

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
        eventually(
            "the quota is set, or refused with a reason",
            30,
            lambda: not console.page.locator("dialog[open]").count() or alert.count(),
        )
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
        eventually(
            "the plan of a share, or why there is none",
            20,
            lambda: console.dialog.locator(".plan, [role=alert]").count(),
        )
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

    def slab_map(self):
        """The slab map of a pool is asked for while it is open alone, and fits in light, in dark and on a phone."""
        for form in FORMS:
            console = Console(self.browser, self.arguments, form).sign_in(
                self.arguments.user, self.arguments.password
            )
            asked = []
            console.page.on("request", lambda sent, asked=asked: "/slabs" in sent.url and asked.append(sent.url))
            console.show(f"pools/{POOL}")
            console.sees("the room on each disk", "Room on each disk")
            # Events arrive while the driver waits in the browser.
            console.page.wait_for_timeout(2000)
            expect("a closed map asks nothing", not asked, asked)
            summary = console.page.locator("summary", has_text="Slab map")
            summary.click()
            bars = console.page.locator("svg.slabs")
            eventually("each of the five disks has a bar", 15, lambda: bars.count() == 5)
            labels = [bar.get_attribute("aria-label") for bar in bars.all()]
            is_found = any(re.search(r"vm \S+ %.*, free \d", label) for label in labels)
            expect("a bar says what lies on its disk", is_found, labels)
            console.sees("the legend", "vm", selector=".fold .legend")
            console.is_accessible(f"the slab map ({form})")
            console.fits(f"the slab map ({form})")
            if form == "phone":
                summary.evaluate("node => node.scrollIntoView()")
            console.shot(f"slab-map-{form}", form != "phone")
            if form == "light":
                eventually(
                    "an open map is asked for again",
                    20,
                    lambda: (console.page.wait_for_timeout(100), len(asked) > 1)[1],
                )
                summary.click()
                eventually("a closed map shows nothing", 5, lambda: not bars.count())
                console.page.wait_for_timeout(1000)
                before = len(asked)
                console.page.wait_for_timeout(12000)
                expect("a closed map asks nothing more", len(asked) == before, asked)
            console.close()
        self.say("the slab map shows what lies where, and asks while it is open alone")

    def every_action(self):
        """Each action of a page opens a dialog with a plan, or a reason, and a command line that dolmen understands."""
        console = self.console
        seen = []
        pages = [f"pools/{POOL}", f"disks/{POOL}/0", f"spaces/{POOL}/vm"]
        for path in pages + ([f"volumes/{POOL}/home"] if self.arguments.mount else []):
            console.show(path)
            head = console.page.locator(".page-head button:visible")
            eventually(f"{path} has actions", 10, head.count)
            menu = console.page.locator(".page-head .menu-button")
            entries = [(False, name) for name in head.all_inner_texts()]
            entries += [(True, name) for name in menu.locator(".menu button").all_text_contents()]
            for is_hidden, name in entries:
                if is_hidden:
                    menu.locator("summary").click()
                console.button(name, console.page.locator(".page-head")).click()
                dialog = console.dialog
                dialog.wait_for()
                if not dialog.locator(".steps").count():
                    console.understood()
                    seen.append(name)
                console.is_accessible(f"{name} on {path}")
                console.page.keyboard.press("Escape")
                console.done()
        expect("many actions have a dialog", len(seen) > 20, seen)
        self.actions_without_plan()
        self.say(f"{len(seen)} actions show a plan or a reason, and a command that dolmen understands")

    def actions_without_plan(self):
        """Actions about accounts, and the import of a pool with what it may want."""
        console = self.console
        console.show("settings")
        for name in ("Change the password", "New user", "New token"):
            console.button(name).click()
            console.has_command()
            console.is_accessible(name)
            console.page.keyboard.press("Escape")
            console.done()
        console.show("plan")
        console.page.locator("input[name=disks]").fill("4x8TB 4TB")
        console.button("Plan").click()
        console.sees("the plan", "5 disks in 5 fault domains")
        console.sees("what one more disk brings", "With one more disk")
        line = console.page.locator("main .command-text").inner_text()
        expect("the page shows the command", line == "dolmen plan 4x8TB 4TB", line)
        self.is_well("the planner")
        console.page.locator("input[name=disks]").fill("8XB")
        console.button("Plan").click()
        console.page.wait_for_selector("main [role=alert]:has-text('8XB')")
        console.show("pools")
        console.button("Import a pool").click()
        console.dialog.locator("input[type=text]").first.fill("elsewhere")
        for name, option in (("confirmed", "--confirmed"), ("accept", "--accept")):
            console.dialog.locator(f"input[name={name}]").check()
            eventually(
                f"the command has {option}",
                10,
                lambda option=option: option in console.dialog.locator(".command-text").inner_text(),
            )
        line = console.dialog.locator(".command-text").inner_text()
        # A pool that is nowhere is a command that makes no sense, so it is not run.
        expect("it is the command", line == "dolmen pool import --confirmed --accept --pool elsewhere", line)
        console.is_accessible("the import of a pool")
        console.page.keyboard.press("Escape")
        console.done()

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
        eventually(
            "the pool is destroyed", 15, lambda: f"#/pools/{POOL}" not in console.page.inner_html("main")
        )
        console.close()
        self.say("the pool is destroyed once its name was typed")
