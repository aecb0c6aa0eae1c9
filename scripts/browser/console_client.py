"""The web console in a browser: what its users do, from the first sign-in to a replaced disk.

Runs against a server that is there. The daemon behind it has to see the files of the folder `--disks` as devices, and has no
pool `browser`. `--stop` and `--start` are commands that end the daemon and start it again. See --help.
Each line says what holds; the first that does not ends the program with 1.
"""

import argparse
import os
import pathlib
import sys
import time

from playwright.sync_api import sync_playwright

from console_cost import Cost
from console_look import Look
from console_operation import Operation
from console_page import Console, Failure, expect
from console_server import Server
from console_setup import MIB, Setup
from console_trouble import Trouble


def arguments_of():
    environment = os.environ.get
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base", required=True, help="address of the server, such as https://127.0.0.1:8443")
    parser.add_argument("--user", default=environment("DOLMEN_CONSOLE_USER", "anna"))
    parser.add_argument("--password", default=environment("DOLMEN_CONSOLE_PASSWORD", "correct horse battery"))
    parser.add_argument("--code-command", help="prints the code of the first sign-in")
    parser.add_argument(
        "--disks", required=True, type=pathlib.Path, help="folder for files that the daemon sees as devices"
    )
    parser.add_argument("--stop", required=True, help="command that ends the daemon")
    parser.add_argument("--start", required=True, help="command that starts the daemon")
    parser.add_argument("--web-kill", help="command that kills the server; without it nothing does")
    parser.add_argument("--web-start", help="command that starts the server at the same address")
    parser.add_argument(
        "--processes",
        type=lambda text: dict(each.split("=", 1) for each in text.split(",")),
        help="NAME=FILE,…: files that begin with the process of the daemon and of the server, each the leader of a session",
    )
    parser.add_argument(
        "--steps", type=lambda text: text.split(","), help="NAME,…: these steps alone, in the usual order"
    )
    parser.add_argument(
        "--mount", type=pathlib.Path, help="folder for mount points; without it there is no test of volumes"
    )
    parser.add_argument("--dolmen", help="the program dolmen; without it command lines are not run")
    parser.add_argument("--socket", default=environment("DOLMEN_SOCKET", ""))
    parser.add_argument(
        "--axe", default=environment("DOLMEN_AXE"), help="axe.min.js; without it nothing is asked of axe"
    )
    parser.add_argument("--bars", action="store_true", help="fail where a figure is far above its bar")
    parser.add_argument("--shots", help="folder for screenshots")
    parser.add_argument(
        "--chromium",
        default=environment("DOLMEN_CHROMIUM"),
        help="the browser, where it is not that of Playwright",
    )
    return parser.parse_args()


class Suite(Setup, Operation, Trouble, Server, Look, Cost):
    """All steps, in order; each leaves what the next one needs."""

    def __init__(self, browser, arguments):
        self.browser = browser
        self.arguments = arguments
        self.console = None
        # The page of a report, where a benchmark could be run.
        self.report = None
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

    def run(self):
        self.console = Console(self.browser, self.arguments)
        steps = [
            self.table_of_verbs,
            self.first_sign_in,
            self.first_page,
            self.new_pool,
            self.new_spaces,
            self.live_load,
            self.server_killed,
            self.other_site,
            self.changes_of_spaces,
            self.jobs,
            self.bench,
            self.volume,
            self.add_disks,
            self.slab_map,
            self.every_action,
            self.two_browsers,
            self.expired_session,
            self.another_user,
            self.upgraded,
            self.daemon_restarts,
            self.failed_disk,
            self.idle_cost,
            self.all_forms,
            self.destroy_pool,
        ]
        wanted = self.arguments.steps or [step.__name__ for step in steps]
        unknown = set(wanted) - {step.__name__ for step in steps}
        expect("--steps names steps of the suite", not unknown, unknown)
        for step in [step for step in steps if step.__name__ in wanted]:
            try:
                step()
            except Exception as error:
                self.console.shot("failed")
                raise Failure(
                    f"{step.__name__}: {error}; the browser said {self.console.complaints}"
                ) from error


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
        print(
            f"console: {suite.count} results, none missing, {time.monotonic() - suite.started:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
