//! The handshake: from the greeting to the choice of an export.
//!
//! Every length is checked against a bound before anything is read by it. What was negotiated is one value,
//! [`Negotiated`], which begins empty. What was said before TLS was said to a [`Prelude`](crate::Prelude), which has no
//! such value, so nothing of it can be believed here.

use std::cell::Cell;
use std::rc::Rc;

use dolmen_buffer::{Arena, Buffer};

use crate::connection::Connection;
use crate::export::{Access, Export, Exports, Medium, Profile, Refusal};
use crate::guard::Watch;
use crate::intake::{Ahead, Intake};
use crate::option::{
    CLIENT_FLAGS_BYTES, ClientFlags, Facts, HandshakeError, OPTION_HEADER_BYTES, OptionHeader, RefusedOption,
    Replies, Request, Wanted, greeting,
};
use crate::outbox::HEADS_BYTES;
use crate::request::{Agreed, PAYLOAD_BYTES_MAX, ReplyForm};
use crate::session::SessionError;
use crate::wire::{info, option, transmission};
use crate::{HANDSHAKE_BYTES_MAX, OPTION_BYTES_MAX, OPTIONS_MAX};

/// Memory through which replies of the handshake leave; the heads of replies use it afterwards.
pub(crate) const REPLY_BYTES: usize = HEADS_BYTES;

/// What options have agreed on so far. Nothing else is kept from one option to the next.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Negotiated {
    form: ReplyForm,
    /// The export, by the name the client used, for which `base:allocation` was selected.
    allocation_of: Option<String>,
}

impl Negotiated {
    fn agreed(&self, name: &str) -> Agreed {
        let allocation = self.form.has_chunks() && self.allocation_of.as_deref() == Some(name);
        Agreed { form: self.form, allocation }
    }
}

/// How a handshake ended well.
pub(crate) enum Next<X> {
    /// The client chose an export.
    Transmission(Rc<X>, Agreed),
    /// The client left.
    Left,
}

/// What an option led to.
enum Step<X> {
    Stay,
    End(Next<X>),
}

/// How far a connection has come when its session begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entrance {
    /// Nothing was said: the session greets.
    Greeting,
    /// TLS stands, behind a [`Prelude`](crate::Prelude) in which the client gave these flags. The session begins with
    /// options, and knows nothing else of what was said before.
    AfterTls(ClientFlags),
}

pub(crate) struct Handshake<'a, C, S: Exports> {
    pub(crate) connection: &'a C,
    pub(crate) exports: &'a S,
    pub(crate) visitor: &'a S::Visitor,
    pub(crate) entrance: Entrance,
    pub(crate) arena: &'a Arena,
    /// [`REPLY_BYTES`] through which replies leave; absent while the driver has them.
    pub(crate) memory: Cell<Option<Buffer>>,
    pub(crate) watch: &'a Watch,
}

impl From<Refusal> for RefusedOption {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Unknown => Self::UnknownExport,
            Refusal::NotAllowed => Self::Policy,
            Refusal::Stopping => Self::Stopping,
        }
    }
}

impl<C: Connection, S: Exports> Handshake<'_, C, S> {
    pub(crate) async fn run(&self, intake: &mut Intake<C>) -> Result<Next<S::Export>, SessionError> {
        let flags = match self.entrance {
            Entrance::Greeting => {
                self.send(&greeting()).await?;
                ClientFlags::parse(intake.head::<CLIENT_FLAGS_BYTES>(Ahead::Nothing).await?)?
            }
            Entrance::AfterTls(flags) => flags,
        };
        let mut negotiated = Negotiated::default();
        let mut received_bytes = 0u64;
        let mut data = Vec::new();
        for _ in 0..OPTIONS_MAX {
            let head = intake.head::<OPTION_HEADER_BYTES>(Ahead::Nothing).await?;
            self.watch.option_came();
            let header = OptionHeader::parse(&head)?;
            if !flags.fixed_newstyle && header.option != option::EXPORT_NAME {
                return Err(HandshakeError::NotFixed { option: header.option }.into());
            }
            received_bytes += u64::from(header.data_bytes);
            if header.data_bytes > OPTION_BYTES_MAX {
                self.refuse_too_big(intake, header, received_bytes).await?;
                continue;
            }
            if received_bytes > HANDSHAKE_BYTES_MAX {
                self.reply(header.option, |replies| replies.error(RefusedOption::TooBig)).await?;
                return Err(HandshakeError::TooManyBytes { found: received_bytes }.into());
            }
            data.clear();
            intake.append(&mut data, header.data_bytes).await?;
            match self.option(header.option, &data, flags, &mut negotiated).await? {
                Step::Stay => {}
                Step::End(next) => return Ok(next),
            }
        }
        Err(HandshakeError::TooManyOptions { options_max: OPTIONS_MAX }.into())
    }

    /// Answers an option whose data is not even read, skips the data if that is bearable, and otherwise ends.
    async fn refuse_too_big(
        &self,
        intake: &mut Intake<C>,
        header: OptionHeader,
        received_bytes: u64,
    ) -> Result<(), SessionError> {
        if header.option == option::EXPORT_NAME {
            return Err(HandshakeError::NoExport { refusal: RefusedOption::TooBig }.into());
        }
        if received_bytes > HANDSHAKE_BYTES_MAX {
            self.reply(header.option, |replies| replies.error(RefusedOption::TooBig)).await?;
            return Err(HandshakeError::TooManyBytes { found: received_bytes }.into());
        }
        intake.skip(u64::from(header.data_bytes)).await?;
        self.reply(header.option, |replies| replies.error(RefusedOption::TooBig)).await
    }

    async fn option(
        &self,
        option: u32,
        data: &[u8],
        flags: ClientFlags,
        negotiated: &mut Negotiated,
    ) -> Result<Step<S::Export>, SessionError> {
        if option == option::SET_META_CONTEXT {
            // A new selection replaces the old one even when it fails.
            negotiated.allocation_of = None;
        }
        let request = match Request::parse(option, data) {
            Ok(Request::Abort) => return self.abort().await,
            Ok(Request::ExportName { name }) => return self.export_name(name, flags, negotiated).await,
            Err(refusal) if option == option::EXPORT_NAME => {
                return Err(HandshakeError::NoExport { refusal }.into());
            }
            _ if self.watch.is_stopping() => return self.refuse(option, RefusedOption::Stopping).await,
            Err(refusal) => return self.refuse(option, refusal).await,
            Ok(request) => request,
        };
        match request {
            Request::ExportName { .. } | Request::Abort => Ok(Step::Stay),
            Request::List => self.list().await,
            Request::StartTls => {
                let refusal = match self.entrance {
                    Entrance::Greeting => RefusedOption::NoTls,
                    Entrance::AfterTls(_) => RefusedOption::TlsTwice,
                };
                self.refuse(option, refusal).await
            }
            Request::Info { name, wanted } => self.describe(option, name, wanted, negotiated).await,
            Request::Go { name, wanted } => self.describe(option, name, wanted, negotiated).await,
            Request::StructuredReply => {
                let refusal = match negotiated.form {
                    ReplyForm::Simple => None,
                    ReplyForm::Structured => Some(RefusedOption::Repeated),
                    ReplyForm::Extended => Some(RefusedOption::Extended),
                };
                self.agree(option, ReplyForm::Structured, refusal, negotiated).await
            }
            Request::ExtendedHeaders => {
                let is_repeated = negotiated.form == ReplyForm::Extended;
                let refusal = is_repeated.then_some(RefusedOption::Repeated);
                self.agree(option, ReplyForm::Extended, refusal, negotiated).await
            }
            Request::ListContexts { .. } | Request::SetContexts { .. } if !negotiated.form.has_chunks() => {
                self.refuse(option, RefusedOption::NeedsStructured).await
            }
            Request::ListContexts { name, allocation } => self.contexts(option, name, allocation, None).await,
            Request::SetContexts { name, allocation } => {
                self.contexts(option, name, allocation, Some(negotiated)).await
            }
        }
    }

    /// Takes a form of replies up, unless that is refused.
    async fn agree(
        &self,
        option: u32,
        form: ReplyForm,
        refusal: Option<RefusedOption>,
        negotiated: &mut Negotiated,
    ) -> Result<Step<S::Export>, SessionError> {
        if let Some(refusal) = refusal {
            return self.refuse(option, refusal).await;
        }
        negotiated.form = form;
        self.stay(option, |replies| replies.ack()).await
    }

    async fn abort(&self) -> Result<Step<S::Export>, SessionError> {
        // Clients may leave without waiting for this, which is no failure.
        let _ = self.reply(option::ABORT, |replies| replies.ack()).await;
        Ok(Step::End(Next::Left))
    }

    async fn list(&self) -> Result<Step<S::Export>, SessionError> {
        let listed = match self.exports.list(self.visitor).await {
            Ok(listed) => listed,
            Err(refusal) => return self.refuse(option::LIST, refusal.into()).await,
        };
        self.stay(option::LIST, |replies| {
            for export in &listed {
                replies.server(&export.name, &export.description);
            }
            replies.ack();
        })
        .await
    }

    async fn export_name(
        &self,
        name: &str,
        flags: ClientFlags,
        negotiated: &Negotiated,
    ) -> Result<Step<S::Export>, SessionError> {
        if negotiated.form == ReplyForm::Extended {
            return Err(HandshakeError::NoExport { refusal: RefusedOption::NeedsGo }.into());
        }
        let opened = if self.watch.is_stopping() {
            Err(Refusal::Stopping)
        } else {
            self.exports.open(self.visitor, name).await
        };
        let export = opened.map_err(|refusal| HandshakeError::NoExport { refusal: refusal.into() })?;
        let agreed = negotiated.agreed(name);
        let facts = facts(export.profile(), agreed);
        let mut bytes = Vec::new();
        Replies { into: &mut bytes, option: option::EXPORT_NAME }.export_name(&facts, flags.no_zeroes);
        self.send(&bytes).await?;
        Ok(Step::End(Next::Transmission(export, agreed)))
    }

    async fn describe(
        &self,
        option: u32,
        name: &str,
        wanted: Wanted,
        negotiated: &Negotiated,
    ) -> Result<Step<S::Export>, SessionError> {
        let export = match self.exports.open(self.visitor, name).await {
            Ok(export) => export,
            Err(refusal) => return self.refuse(option, refusal.into()).await,
        };
        let agreed = negotiated.agreed(name);
        self.reply(option, |replies| {
            let profile = export.profile();
            replies.facts(&facts(profile, agreed));
            if wanted.name {
                replies.text(info::NAME, &profile.name);
            }
            if wanted.description {
                replies.text(info::DESCRIPTION, &profile.description);
            }
            replies.ack();
        })
        .await?;
        let goes = option == option::GO;
        Ok(if goes { Step::End(Next::Transmission(export, agreed)) } else { Step::Stay })
    }

    /// Lists the context, or selects it when there is something to note the selection in.
    async fn contexts(
        &self,
        option: u32,
        name: &str,
        allocation: bool,
        selection: Option<&mut Negotiated>,
    ) -> Result<Step<S::Export>, SessionError> {
        if let Err(refusal) = self.exports.open(self.visitor, name).await {
            return self.refuse(option, refusal.into()).await;
        }
        if let Some(negotiated) = selection {
            negotiated.allocation_of = allocation.then(|| name.to_owned());
        }
        self.stay(option, |replies| {
            if allocation {
                replies.context();
            }
            replies.ack();
        })
        .await
    }

    async fn refuse(&self, option: u32, refusal: RefusedOption) -> Result<Step<S::Export>, SessionError> {
        self.stay(option, |replies| replies.error(refusal)).await
    }

    async fn stay(
        &self,
        option: u32,
        write: impl FnOnce(&mut Replies<'_>),
    ) -> Result<Step<S::Export>, SessionError> {
        self.reply(option, write).await?;
        Ok(Step::Stay)
    }

    async fn reply(&self, option: u32, write: impl FnOnce(&mut Replies<'_>)) -> Result<(), SessionError> {
        let mut bytes = Vec::new();
        write(&mut Replies { into: &mut bytes, option });
        self.send(&bytes).await
    }

    async fn send(&self, bytes: &[u8]) -> Result<(), SessionError> {
        send_bytes(self.connection, self.arena, &self.memory, bytes).await
    }
}

/// Sends bytes through a frame of [`REPLY_BYTES`], which is taken again if the driver has kept it.
pub(crate) async fn send_bytes<C: Connection>(
    connection: &C,
    arena: &Arena,
    frame: &Cell<Option<Buffer>>,
    bytes: &[u8],
) -> Result<(), SessionError> {
    for part in bytes.chunks(REPLY_BYTES) {
        let mut memory = match frame.take() {
            Some(memory) => memory,
            None => arena.take(REPLY_BYTES).await,
        };
        memory.copy_in(part);
        let whole = memory.freeze();
        let (parts, result) = connection.send(vec![whole.slice(0..part.len())]).await;
        drop(parts);
        frame.set(whole.thaw().ok());
        result.map_err(SessionError::Send)?;
    }
    Ok(())
}

/// What the handshake tells of an export.
fn facts(profile: &Profile, agreed: Agreed) -> Facts {
    profile.assert_valid();
    let mut flags = transmission::HAS_FLAGS
        | transmission::SEND_FLUSH
        | transmission::SEND_FUA
        | transmission::CAN_MULTI_CONN
        | transmission::SEND_CACHE;
    flags |= match profile.access {
        Access::ReadOnly => transmission::READ_ONLY,
        Access::ReadWrite => {
            transmission::SEND_TRIM | transmission::SEND_WRITE_ZEROES | transmission::SEND_FAST_ZERO
        }
    };
    if agreed.form.has_chunks() {
        flags |= transmission::SEND_DF;
    }
    if profile.medium == Medium::Rotational {
        flags |= transmission::ROTATIONAL;
    }
    let block_bytes = [profile.block_bytes_min, profile.block_bytes_preferred, PAYLOAD_BYTES_MAX];
    Facts { size_bytes: profile.size.0, flags, block_bytes }
}
