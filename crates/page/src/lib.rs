//! Pages that need nothing else: one file of HTML, its style inside, drawings as SVG, no script.
//!
//! [`opening`] and [`CLOSING`] are the frame of each page, [`Drawing`] makes the drawings. What stands on a page is the
//! business of the crate whose page it is.
//!
//! Invariant: text from outside reaches a page through [`escaped`] alone, here or by the hand of the caller.

mod svg;

pub use svg::{Anchor, Area, Drawing, Point, Stroke, escaped, scaled};

/// The end of each page.
pub const CLOSING: &str = "</body></html>\n";

/// Colours of lines, in turn. The first six are told apart by people who see some colours alike (Okabe and Ito, 2008).
pub const LINES: [&str; 11] = [
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#7a5195", "#8c8c00", "#6b6b6b",
    "#a0522d", "#00a5a5",
];

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c1c1c;--soft:#767676;--paper:#ffffff;--rule:#d8d8d8}\
@media(prefers-color-scheme:dark){:root{--ink:#ececec;--soft:#a0a0a0;--paper:#161616;--rule:#3a3a3a}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:960px;margin:2em auto;padding:0 1em}\
h1{font-size:1.6em;margin:0}h2{font-size:1.15em;margin:2em 0 .4em}p{margin:.3em 0;max-width:46em}\
div{overflow-x:auto}table{border-collapse:collapse;font-size:12px;margin:.8em 0}th,td{padding:.2em .5em;text-align:right;border-bottom:1px solid var(--rule);white-space:nowrap}\
th{white-space:normal;vertical-align:bottom}th:first-child,td:first-child,td.l,th.l{text-align:left}td.l{white-space:normal}\
svg{max-width:100%;height:auto;display:block;margin:.6em 0}svg text{font:12px system-ui,sans-serif;fill:var(--ink)}\
svg .rule{stroke:var(--rule);stroke-width:1}.soft{color:var(--soft)}\
.key{display:inline-block;width:.8em;height:.8em;margin:0 .35em 0 1em;vertical-align:-1px}.keys{font-size:13px}.keys .key:first-child{margin-left:0}";

/// The beginning of a page, up to its first heading.
#[must_use]
pub fn opening(title: &str) -> String {
    let title = escaped(title);
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>Dolmen: {}</title><style>{STYLE}</style></head><body>\n\
         <h1>{title}</h1>",
        lower_first(&title)
    )
}

fn lower_first(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map(|first| first.to_lowercase().chain(characters).collect()).unwrap_or_default()
}

/// Fields of a row of a table.
#[must_use]
pub fn cells(values: &[String]) -> String {
    values.iter().map(|value| format!("<td>{}</td>", escaped(value))).collect()
}

/// Headings of a table.
#[must_use]
pub fn heads(values: &[&str]) -> String {
    values.iter().map(|value| format!("<th>{}</th>", escaped(value))).collect()
}

/// What the colours mean: pairs of a colour and a name.
#[must_use]
pub fn keys(parts: &[(&str, &str)]) -> String {
    let key = |(colour, name): &(&str, &str)| {
        format!("<span class=\"key\" style=\"background:{colour}\"></span>{}", escaped(name))
    };
    format!("<p class=\"keys\">{}</p>\n", parts.iter().map(key).collect::<String>())
}
