//! Changes: asked for, confirmed where data would be lost, and reported.

use dolmen_api::{Change, ErrorCode, Plan, Verb};
use dolmen_units::Bytes;
use serde::Serialize;
use serde_json::Value;

use crate::arguments::common::{Format, Intent};
use crate::confirm::{Consent, Danger, ask, decide};
use crate::error::CliError;
use crate::session::client::{Call, Client, Document, call};
use crate::session::disks::Disks;
use crate::session::poll_interval::PollInterval;
use crate::terminal::out::Out;
use crate::terminal::paint::Tone;

/// What a command works with.
pub(crate) struct Session<'a, 'o> {
    /// Whom to ask.
    pub client: Client,
    /// Where to show answers.
    pub out: &'a mut Out<'o>,
    /// How to write them.
    pub format: Format,
    /// How often jobs are looked at.
    pub poll_interval: PollInterval,
}

/// Changes that one command asks for, in their order.
#[derive(Default)]
pub(crate) struct ChangeSequence(Vec<(String, Value)>);

impl ChangeSequence {
    /// A further one, if there is one.
    pub(crate) fn then<V: Verb<Answer = Change>>(
        mut self,
        values: V::Values<'_>,
        request: Option<V::Request>,
    ) -> Result<Self, CliError> {
        if let Some(request) = request {
            let path = call::<V>(values).path;
            let request = serde_json::to_value(request);
            let request =
                request.map_err(|source| CliError::Request { asked: format!("POST {path}"), source })?;
            self.0.push((path, request));
        }
        Ok(self)
    }
}

impl Session<'_, '_> {
    /// Shows a document as it is, or as text.
    pub(crate) fn show<T>(&mut self, document: &Document<T>, text: impl FnOnce(&T, &mut Out<'_>)) {
        match self.format {
            Format::Json => self.out.line(document.raw.trim_end()),
            Format::Text => text(&document.value, self.out),
        }
    }

    /// Asks for a change and tells what came of it.
    pub(crate) fn change<V: Verb<Answer = Change>>(
        &mut self,
        call: &Call<V>,
        request: &V::Request,
        intent: Intent,
    ) -> Result<Change, CliError> {
        self.change_at(&call.path, request, intent)
    }

    fn change_at(
        &mut self,
        path: &str,
        request: &impl Serialize,
        intent: Intent,
    ) -> Result<Change, CliError> {
        let document = self.client.change_at(path, request, intent)?;
        Ok(self.print(document, intent, |change| Some(change.message.clone())))
    }

    /// Asks for changes one after another, and tells what came of each; the last of them. What cannot be done is refused before
    /// anything else is done.
    pub(crate) fn change_in_sequence(
        &mut self,
        changes: &ChangeSequence,
        intent: Intent,
    ) -> Result<Option<Change>, CliError> {
        // The first one is refused by itself.
        for (path, request) in changes.0.iter().skip(1) {
            self.client.change_at(path, request, Intent::DryRun)?;
        }
        let mut last = None;
        for (path, request) in &changes.0 {
            last = Some(self.change_at(path, request, intent)?);
        }
        Ok(last)
    }

    /// Tells what came of a change; `result` is the line that programs read of it, if there is one.
    pub(crate) fn print(
        &mut self,
        document: Document<Change>,
        intent: Intent,
        result: impl FnOnce(&Change) -> Option<String>,
    ) -> Change {
        self.show(&document, |change, out| match intent {
            Intent::DryRun => show_plan(out, change),
            Intent::Act => result(change).iter().for_each(|line| out.line(line)),
        });
        document.value.warnings.iter().for_each(|warning| self.out.print(format_args!("warning: {warning}")));
        document.value
    }

    /// Asks for a change that destroys something with a name, after that name was given or typed. A dry run comes first: nobody
    /// is asked about what is not there, and a name that was given to a dry run is judged as it would be without.
    pub(crate) fn destroy<V: Verb<Answer = Change>>(
        &mut self,
        call: &Call<V>,
        danger: &Danger<'_>,
        given: Option<&str>,
        request: impl Fn(Option<String>) -> V::Request,
        intent: Intent,
    ) -> Result<Change, CliError> {
        let plan = self.client.change(call, &request(None), Intent::DryRun)?;
        if intent == Intent::DryRun {
            given.map(|given| decide(self.out, danger, Some(given))).transpose()?;
            return Ok(self.print(plan, intent, |_| None));
        }
        // Where there was something to lose by the time of the change after all, the daemon refuses it without a name.
        if plan.value.plan.is_reversible {
            return self.change(call, &request(None), intent);
        }
        if decide(self.out, danger, given)? == Consent::ToBeAsked {
            plan.value.plan.steps.iter().for_each(|step| self.out.print(format_args!("  {step}")));
            plan.value.warnings.iter().for_each(|warning| self.out.print(format_args!("warning: {warning}")));
            ask(self.out, danger)?;
        }
        let name = danger.name.rsplit('/').next().unwrap_or(danger.name);
        self.change(call, &request(Some(name.to_owned())), intent)
    }

    /// Asks for a change that takes disks in. The daemon refuses disks with content before it writes anything; each of
    /// them is asked about, and the change is asked for again with what was consented to.
    pub(crate) fn take_in<V: Verb<Answer = Change>>(
        &mut self,
        call: &Call<V>,
        disks: &Disks,
        request: impl Fn(&[String]) -> V::Request,
        intent: Intent,
    ) -> Result<Change, CliError> {
        let mut consented = disks.consented.clone();
        loop {
            let body = match self.client.change(call, &request(&consented), intent) {
                Ok(document) => {
                    return Ok(self.print(document, intent, |change| Some(change.message.clone())));
                }
                Err(CliError::Daemon { body }) => body,
                Err(error) => return Err(error),
            };
            let held = matches!(body.code, ErrorCode::ForeignData | ErrorCode::NeedsConfirmation);
            let disk = body.object.as_ref().filter(|_| held && intent == Intent::Act);
            let disk = disk.and_then(|object| disks.given_as(object));
            let Some((absolute, as_given)) = disk.filter(|(absolute, _)| !consented.contains(absolute))
            else {
                return Err(CliError::Daemon { body });
            };
            if !self.out.can_ask() {
                // Where the daemon names the option, a hint would say it twice.
                if body.message.contains("--destroy=") {
                    return Err(CliError::Daemon { body });
                }
                let hint = format!("if what it holds is not needed any more, say --destroy={as_given}");
                return Err(CliError::Daemon { body: Box::new(body.hint(hint)) });
            }
            self.out.print(&body);
            let object = format!("disk {as_given}");
            ask(self.out, &Danger { object: &object, name: &as_given, alias: Some(&absolute) })?;
            consented.push(absolute);
        }
    }
}

/// Shows what would happen, and why a volume gets what it gets.
fn show_plan(out: &mut Out<'_>, change: &Change) {
    let (plan, paint) = (&change.plan, out.paint_results);
    out.line("dry run, nothing was changed; this would happen:");
    for (at, step) in plan.steps.iter().enumerate() {
        out.labelled(&format!("  {}. ", at + 1), step);
    }
    if plan.steps.is_empty() {
        out.line("  nothing");
    }
    if let Some(volume) = &change.volume_plan {
        out.line("chosen because:");
        volume.reasons.iter().for_each(|reason| out.labelled("  - ", reason));
    }
    out.show(&figures_text(plan));
    out.labelled("can be undone  ", &undone(plan, |text| paint.tone(text, Tone::Caution)));
}

fn undone(plan: &Plan, warn: impl Fn(&str) -> String) -> String {
    match (plan.is_reversible, &plan.undo) {
        (true, Some(command)) => format!("yes: {command}"),
        (true, None) => "there is nothing to undo".to_owned(),
        (false, _) => warn("no"),
    }
}

fn figures_text(plan: &Plan) -> String {
    let mut text = String::new();
    text.push_str(&format!("usable before  {}\n", Bytes(plan.usable_before_bytes)));
    text.push_str(&format!("usable after   {}\n", Bytes(plan.usable_after_bytes)));
    let at_most = if plan.moved_bytes > 0 { " at most" } else { "" };
    text.push_str(&format!("bytes moved    {}{at_most}\n", Bytes(plan.moved_bytes)));
    text
}
