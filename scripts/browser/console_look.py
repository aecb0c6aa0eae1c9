"""The step of the suite that looks at every page in every form."""

import time

from console_load import Load
from console_page import FORMS, POOL, Console

PAGES = [
    "home",
    "disks",
    f"disks/{POOL}/0",
    "pools",
    f"pools/{POOL}",
    "spaces",
    f"spaces/{POOL}/vm",
    "volumes",
    "shares",
    "jobs",
    "events",
    "performance",
    "plan",
    "bench",
    "settings",
]


class Look:
    """Every page in light, in dark and on a phone."""

    def all_forms(self):
        """Every page in light, in dark and on a phone: axe, width and a picture."""
        pages = PAGES + ([f"volumes/{POOL}/home"] if self.arguments.mount else [])
        pages += [self.report] if self.report else []
        with Load(*self.export):
            for form in FORMS:
                console = Console(self.browser, self.arguments, form).sign_in(
                    self.arguments.user, self.arguments.password
                )
                for path in pages:
                    console.show(path)
                    time.sleep(1)
                    console.is_accessible(f"{path} ({form})")
                    console.fits(f"{path} ({form})")
                    # On a phone the menu stays at the lower end of the window.
                    console.shot(f"{path.replace('/', '-')}-{form}", form != "phone")
                if form == "phone":
                    console.page.locator(".nav .more").click()
                    console.is_accessible("the open menu of a phone")
                    console.shot("menu-phone", False)
                    console.page.get_by_role("link", name="Pools", exact=True).click()
                    console.sees("a page from the menu", "New pool")
                    self.disk("bay7", 3072)
                    self.disk("bay8", 2048)
                    console.button("New pool").click()
                    for name in ("bay7", "bay8"):
                        console.dialog.locator(f"input[value='{self.arguments.disks / name}']").check()
                    console.fits("a wizard on a phone")
                    console.is_accessible("a wizard on a phone")
                    console.shot("wizard-phone", False)
                console.close()
        self.say(f"{len(pages)} pages in {len(FORMS)} forms have no serious finding and are not too wide")
