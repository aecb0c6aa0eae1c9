"use strict";
const byId = (id) => document.getElementById(id);

async function ask(path, body) {
  const headers = { "Content-Type": "application/json", "Dolmen-Request": "1" };
  const options = body === undefined ? {} : { method: "POST", headers, body: JSON.stringify(body) };
  const response = await fetch(path, options);
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error.message);
  return answer;
}

async function show() {
  const account = await ask("/account");
  byId("code-row").hidden = !account.first;
  if (account.user !== null) byId("message").textContent = `signed in as ${account.user}`;
}

byId("sign-in").addEventListener("submit", async (event) => {
  event.preventDefault();
  const account = { user: byId("user").value, password: byId("password").value };
  try {
    if (byId("code-row").hidden) await ask("/account/sign-in", account);
    else await ask("/account/first", { ...account, code: byId("code").value });
    await show();
  } catch (error) {
    byId("message").textContent = error.message;
  }
});

show().catch((error) => { byId("message").textContent = error.message; });
