//! A strict parser of the text format 0.0.4: what Prometheus refuses or guesses, it refuses.

use std::collections::{BTreeMap, BTreeSet};

/// Label names and values, sorted by name.
pub(crate) type Labels = BTreeMap<String, String>;

/// A family as parsed.
#[derive(Debug, Default)]
pub(crate) struct Parsed {
    pub(crate) kind: String,
    pub(crate) help: String,
    /// Name of the sample, its labels, and its number as written.
    pub(crate) samples: Vec<(String, Labels, String)>,
}

fn is_name(text: &str) -> bool {
    let is_first = |c: char| c.is_ascii_alphabetic() || c == '_';
    text.starts_with(is_first) && text.chars().all(|c| is_first(c) || c.is_ascii_digit())
}

fn is_number(text: &str) -> bool {
    let text = text.strip_prefix('-').unwrap_or(text);
    let (whole, rest) = text.split_once('.').unwrap_or((text, "0"));
    [whole, rest].iter().all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Takes labels after `{` off a line; returns them with what follows `}`.
fn labels(mut text: &str) -> Result<(Labels, &str), String> {
    let mut labels = Labels::new();
    loop {
        if let Some(rest) = text.strip_prefix('}') {
            return if labels.is_empty() { Err("empty braces".to_owned()) } else { Ok((labels, rest)) };
        }
        if !labels.is_empty() {
            text = text.strip_prefix(',').ok_or("no comma between labels")?;
        }
        let (name, rest) = text.split_once("=\"").ok_or("no =\" after a label name")?;
        if !is_name(name) {
            return Err(format!("bad label name {name:?}"));
        }
        let (mut value, mut chars) = (String::new(), rest.chars());
        loop {
            match chars.next().ok_or("a label value without end")? {
                '"' => break,
                '\\' => match chars.next() {
                    Some('\\') => value.push('\\'),
                    Some('"') => value.push('"'),
                    Some('n') => value.push('\n'),
                    other => return Err(format!("bad escape {other:?}")),
                },
                c => value.push(c),
            }
        }
        if labels.insert(name.to_owned(), value).is_some() {
            return Err(format!("label {name} twice"));
        }
        text = chars.as_str();
    }
}

/// Parses an exposition into its families.
pub(crate) fn parse(text: &str) -> Result<BTreeMap<String, Parsed>, String> {
    if !text.ends_with('\n') || text.contains('\r') {
        return Err("it does not end with a newline, or has a carriage return".to_owned());
    }
    let (mut families, mut current) = (BTreeMap::<String, Parsed>::new(), String::new());
    let mut seen = BTreeSet::new();
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        let fail = |what: &str| Err(format!("{what}: {line:?}"));
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap_or((rest, ""));
            if !is_name(name) || help.is_empty() || families.contains_key(name) {
                return fail("bad or repeated HELP");
            }
            current = name.to_owned();
            families.insert(current.clone(), Parsed { help: help.to_owned(), ..Parsed::default() });
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let Some((name, kind)) = rest.split_once(' ') else { return fail("bad TYPE") };
            let is_kind = ["counter", "gauge", "histogram"].contains(&kind);
            let family = families.get_mut(&current).filter(|family| family.kind.is_empty());
            let Some(family) = family.filter(|_| is_kind && name == current) else { return fail("bad TYPE") };
            family.kind = kind.to_owned();
        } else {
            let end = line.find(['{', ' ']).unwrap_or(line.len());
            let (name, rest) = line.split_at(end);
            let (labels, rest) = match rest.strip_prefix('{') {
                Some(rest) => labels(rest).map_err(|error| format!("{error}: {line:?}"))?,
                None => (Labels::new(), rest),
            };
            let Some(number) = rest.strip_prefix(' ').filter(|number| is_number(number)) else {
                return fail("bad number");
            };
            let Some(family) = families.get_mut(&current) else { return fail("a sample before its TYPE") };
            let part = name.strip_prefix(current.as_str());
            let is_part = match family.kind.as_str() {
                "histogram" => matches!(part, Some("_bucket" | "_sum" | "_count")),
                _ => part == Some(""),
            };
            if !is_name(name) || !is_part || !seen.insert((name.to_owned(), labels.clone())) {
                return fail("a sample of another family, or a second one");
            }
            family.samples.push((name.to_owned(), labels, number.to_owned()));
        }
    }
    match families.iter().find(|(_, family)| family.kind.is_empty() || family.samples.is_empty()) {
        Some((name, _)) => Err(format!("family {name} has no TYPE or no sample")),
        None => Ok(families),
    }
}

#[test]
fn what_the_format_forbids_is_refused() {
    let head = "# HELP a b\n# TYPE a gauge\n";
    for good in ["a 1\n", "a{x=\"\\\\\\\"\\n\"} -1.5\n"] {
        assert!(parse(&format!("{head}{good}")).is_ok(), "{good}");
    }
    for bad in [
        "",
        "a 1",
        "a{} 1\n",
        "a{x=\"y} 1\n",
        "a{x=\"\\q\"} 1\n",
        "a{x=\"1\",x=\"2\"} 1\n",
        "a 1\na 2\n",
        "b 1\n",
        "a one\n",
        "a{x=\"a\nb\"} 1\n",
        "a  1\n",
        "a 1\n\n",
    ] {
        assert!(parse(&format!("{head}{bad}")).is_err(), "{bad}");
    }
}
