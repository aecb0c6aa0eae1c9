"""Steps of the suite about the server itself: it is killed under a load, and pages of other sites meet it."""

import http.server
import json
import subprocess
import threading

from console_load import Load
from console_page import POOL, eventually, expect

ROUNDS = 5
# Requests of the load while the server is away.
ROUNDS_WITHOUT = 20

HOSTILE = """<!doctype html><title>another site</title>
<iframe id="frame" src="BASE/"></iframe>
<iframe name="sink"></iframe>
<form id="form" method="post" action="BASE/api/v1/pools/POOL/scrub" enctype="text/plain" target="sink">
<input name='{"x":"' value='"}'></form>
<img src="BASE/account/sign-out">
<script>
const ask = async (more) => {
  try {
    const answer = await fetch('BASE/api/v1/pools/POOL/scrub', {method: 'POST', body: '{}', credentials: 'include', ...more});
    return answer.type;
  } catch { return 'refused'; }
};
(async () => {
  document.getElementById('form').submit();
  window.found = [
    await ask({mode: 'no-cors', headers: {'Content-Type': 'text/plain'}}),
    await ask({headers: {'Content-Type': 'application/json', 'Dolmen-Request': '1'}}),
    await fetch('BASE/account', {credentials: 'include'}).then(() => 'read', () => 'refused'),
  ];
})();
</script>"""


class Site:
    """A site on another port of this machine, until its block ends."""

    def __init__(self, text):
        class Handler(http.server.BaseHTTPRequestHandler):
            """One page for all paths."""

            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


class Server:
    """What the server of the console survives, and what it refuses."""

    def document(self, path):
        """A document of the server, with the session of the browser."""
        answer = self.console.context.request.get(f"{self.arguments.base}{path}")
        expect(f"{path} answers", answer.ok, answer.status)
        return answer.json()

    def server_killed(self):
        """The server is killed again and again under the load of a space."""
        if not self.arguments.web_kill:
            return
        console = self.console
        console.show("home")
        console.page.evaluate("window.stays = true")
        uptime_s = self.document("/api/v1/status")["uptime_s"]
        with Load(*self.export) as load:
            for number in range(ROUNDS):
                subprocess.run(["sh", "-c", self.arguments.web_kill], check=True)
                done = load.rounds
                if number == 0:
                    console.page.wait_for_selector(
                        ".banner:has-text('The server of the console does not answer')", timeout=20000
                    )
                    console.is_accessible("the banner of the server")
                    console.shot("banner-server-light")
                eventually(
                    "the load goes on without the server", 30, lambda: load.rounds > done + ROUNDS_WITHOUT
                )
                subprocess.run(["sh", "-c", self.arguments.web_start], check=True)
                console.page.wait_for_selector(".banner", state="detached", timeout=30000)
                expect("the load has no error", load.error is None, load.error)
        status = self.document("/api/v1/status")
        expect("the daemon is the same", status["uptime_s"] >= uptime_s, [uptime_s, status["uptime_s"]])
        expect("the pool is well", status["health"] == "healthy", status["why"])
        expect("the page was not loaded again", console.page.evaluate("window.stays === true"))
        expect("the session goes on", not console.page.locator("dialog[open]").count())
        self.say(f"the server is killed {ROUNDS} times under a load, which has no error; the page goes on")

    def other_site(self):
        """A page of another site, in a browser that is signed in, frames the console and asks for changes. Nothing comes of it."""
        context = self.console.context
        jobs = self.document("/api/v1/jobs")["jobs"]
        text = HOSTILE.replace("BASE", self.arguments.base).replace("POOL", POOL)
        with Site(text) as site:
            # Another port is another origin of the same site, and gets the cookie; another name is another site.
            for host in ("127.0.0.1", "localhost"):
                page = context.new_page()
                page.goto(f"http://{host}:{site.port}/")
                found = eventually("the page has asked", 20, lambda: page.evaluate("window.found"))
                expect("the page reads no answer", found[1:] == ["refused", "refused"], found)
                frame = page.locator("#frame").element_handle().content_frame()
                expect("the console is in no frame", "Dolmen" not in frame.content(), frame.url)
                page.close()
        expect("nothing was begun", self.document("/api/v1/jobs")["jobs"] == jobs)
        expect("the session goes on", self.document("/account")["user"] == self.arguments.user)
        audit = [json.dumps(entry) for entry in self.document("/account/audit")["entries"]]
        refused = [entry for entry in audit if "scrub" in entry and "403" in entry]
        expect("the audit log has the refusals", len(refused) >= 2, audit[-8:])
        self.say("pages of another site neither frame the console nor change anything")
