//! The attribute [`macro@pooled`]: an `async fn` whose future lies in the future pool.
//!
//! `#[pooled] async fn read(&self, at: u64) -> R { body }` becomes
//! `fn read(&self, at: u64) -> impl Future<Output = R> { Pooled::new(async move { body }) }`, which is never inlined. So the
//! crate that holds the function compiles the body, once, and callers hold three words instead of the state of the body.
//! `#[pooled(4096)]` also fails the build where the future is larger than that many bytes.
//!
//! The attribute works on tokens and needs no parser of Rust: it finds `async`, the parameters, the type behind `->` and the
//! body, and leaves everything else as it is.
//!
//! Invariant: as in an `async fn`, the future owns every parameter, used or not, until it ends or is dropped.

use proc_macro::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};

/// Moves the future of an `async fn` to the future pool. See the page of the crate.
#[proc_macro_attribute]
pub fn pooled(limit: TokenStream, function: TokenStream) -> TokenStream {
    match rewrite(limit, function) {
        Ok(function) => function,
        Err(message) => error(&message),
    }
}

/// What a function is made of.
struct Function {
    /// Attributes, visibility, name, generics: everything in front of the parameters, without `async`.
    head: Vec<TokenTree>,
    parameters: Group,
    /// The type behind `->`; nothing where none is written.
    output: Vec<TokenTree>,
    /// The `where` clause.
    conditions: Vec<TokenTree>,
    body: Group,
}

fn rewrite(limit: TokenStream, function: TokenStream) -> Result<TokenStream, String> {
    let function = Function::parse(function)?;
    let names = names_of(&function.parameters);
    let mut made: TokenStream = parse("#[inline(never)]")?;
    made.extend(function.head);
    made.extend([TokenTree::from(function.parameters)]);
    made.extend(parse("-> impl ::core::future::Future<Output =")?);
    match function.output.is_empty() {
        true => made.extend(parse("()")?),
        false => made.extend(function.output),
    }
    made.extend([TokenTree::from(Punct::new('>', Spacing::Alone))]);
    made.extend(function.conditions);

    // A parameter that the body does not use, or of which it uses a part alone, is owned whole by the future too.
    let mut inner = TokenStream::new();
    for name in names {
        inner.extend(parse("let _ = &")?);
        inner.extend([TokenTree::from(name), TokenTree::from(Punct::new(';', Spacing::Alone))]);
    }
    inner.extend(function.body.stream());
    let mut block = Group::new(Delimiter::Brace, inner);
    block.set_span(function.body.span());
    let mut future = parse("async move")?;
    future.extend([TokenTree::from(block)]);
    let mut call = match limit.is_empty() {
        true => parse("::dolmen_future_pool::Pooled::new")?,
        false => {
            let mut call = parse("::dolmen_future_pool::Pooled::within::<")?;
            call.extend(limit);
            call.extend([TokenTree::from(Punct::new('>', Spacing::Alone))]);
            call
        }
    };
    call.extend([TokenTree::from(Group::new(Delimiter::Parenthesis, future))]);
    let mut body = Group::new(Delimiter::Brace, call);
    body.set_span(function.body.span());
    made.extend([TokenTree::from(body)]);
    Ok(made)
}

impl Function {
    fn parse(function: TokenStream) -> Result<Self, String> {
        let mut tokens = function.into_iter();
        let mut head = Vec::new();
        let mut is_async = false;
        let parameters = loop {
            match tokens.next() {
                Some(TokenTree::Ident(word)) if word.to_string() == "async" => is_async = true,
                Some(TokenTree::Group(group)) if is_async && group.delimiter() == Delimiter::Parenthesis => {
                    break group;
                }
                Some(token) => head.push(token),
                None => return Err("`pooled` expects a function with parameters".to_owned()),
            }
        };
        let mut rest: Vec<TokenTree> = tokens.collect();
        let Some(TokenTree::Group(body)) = rest.pop() else {
            return Err("`pooled` expects a function with a body".to_owned());
        };
        let is_where =
            |token: &TokenTree| matches!(token, TokenTree::Ident(word) if word.to_string() == "where");
        let conditions = match rest.iter().position(is_where) {
            Some(at) => rest.split_off(at),
            None => Vec::new(),
        };
        // The two characters of the arrow.
        let output = rest.into_iter().skip(2).collect();
        Ok(Self { head, parameters, output, conditions, body })
    }
}

/// Names that parameters have; patterns bind what they name by themselves.
fn names_of(parameters: &Group) -> Vec<Ident> {
    let mut names = Vec::new();
    let mut pattern: Vec<TokenTree> = Vec::new();
    let mut is_type = false;
    let mut depth = 0_u32;
    let mut after_dash = false;
    for token in parameters.stream() {
        let sign = match &token {
            TokenTree::Punct(sign) => Some(sign.as_char()),
            _ => None,
        };
        match sign {
            Some('<') => depth += 1,
            // That of an arrow closes nothing.
            Some('>') if !after_dash => depth = depth.saturating_sub(1),
            Some(':') if depth == 0 && !is_type => {
                names.extend(name_of(&pattern));
                is_type = true;
            }
            Some(',') if depth == 0 => {
                if !is_type {
                    names.extend(name_of(&pattern));
                }
                pattern.clear();
                is_type = false;
            }
            _ if !is_type => pattern.push(token.clone()),
            _ => {}
        }
        after_dash = sign == Some('-');
    }
    if !is_type {
        names.extend(name_of(&pattern));
    }
    names
}

/// The name of a parameter: its last word, unless it is a pattern in brackets.
fn name_of(pattern: &[TokenTree]) -> Option<Ident> {
    match pattern.last() {
        Some(TokenTree::Ident(name)) if name.to_string() != "_" => Some(name.clone()),
        _ => None,
    }
}

fn parse(text: &str) -> Result<TokenStream, String> {
    text.parse().map_err(|error| format!("`pooled` made {text:?}, which is no Rust: {error}"))
}

/// What fails the build with a message.
fn error(message: &str) -> TokenStream {
    let name = |text| TokenTree::from(Ident::new(text, Span::call_site()));
    let sign = |character, spacing| TokenTree::from(Punct::new(character, spacing));
    let text = TokenStream::from(TokenTree::from(Literal::string(message)));
    [
        sign(':', Spacing::Joint),
        sign(':', Spacing::Alone),
        name("core"),
        sign(':', Spacing::Joint),
        sign(':', Spacing::Alone),
        name("compile_error"),
        sign('!', Spacing::Alone),
        TokenTree::from(Group::new(Delimiter::Brace, text)),
    ]
    .into_iter()
    .collect()
}
