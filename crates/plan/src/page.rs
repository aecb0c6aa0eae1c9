//! A plan as one page that needs nothing else: figures as tables, drawings as SVG, no script.

mod charts;

use std::fmt::Write;

use dolmen_page::{CLOSING, cells, escaped, heads, keys, opening};
use dolmen_units::Bytes;

use crate::loss::{Basis, Losses, Unit};
use crate::plan::{Answer, Plan};
use crate::sold::as_sold;

/// The page.
#[must_use]
pub fn render(plan: &Plan) -> String {
    let domains = if plan.domain_count == 1 { "fault domain" } else { "fault domains" };
    let disks = if plan.disks.len() == 1 { "disk" } else { "disks" };
    let headline = format!(
        "{} {disks} in {} {domains}, {} raw",
        plan.disks.len(),
        plan.domain_count,
        as_sold(Bytes(plan.raw_bytes))
    );
    let mut page = opening("What these disks give");
    push(&mut page, format_args!("<p>{headline}</p>"));
    if plan.answers.iter().any(|answer| !answer.in_this_version) {
        push(
            &mut page,
            format_args!("<p class=\"soft\">* not in this version: planned for, and cannot be made yet</p>"),
        );
    }
    for (answer, warning) in plan.answers.iter().flat_map(|of| of.warnings.iter().map(move |text| (of, text)))
    {
        push(&mut page, format_args!("<p>{}: {}</p>", escaped(&title(answer)), escaped(warning)));
    }
    push_room(&mut page, plan);
    push_disks(&mut page, plan);
    push_losses(&mut page, plan);
    push_additions(&mut page, plan);
    push_footprint(&mut page, plan);
    page.push_str(CLOSING);
    page
}

fn push(page: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(page, "{text}");
}

/// The name of a layout, marked where this version cannot make it.
pub(crate) fn title(answer: &Answer) -> String {
    format!("{}{}", answer.title, if answer.in_this_version { "" } else { " *" })
}

fn bytes(of: u64) -> String {
    Bytes(of).to_string()
}

fn push_room(page: &mut String, plan: &Plan) {
    push(
        page,
        format_args!(
            "<h2>Usable room</h2><p>All bytes of the disks, and what they are for. The dark part of what is usable can be used \
         and still be restored in full on the other disks after any one of them is lost.</p>"
        ),
    );
    page.push_str(&keys(&charts::PARTS));
    page.push_str(&charts::room(plan));
    let head = heads(&[
        "resiliency",
        "usable",
        "heals a disk",
        "heals a domain",
        "redundancy",
        "write cache",
        "tables",
        "stranded",
        "reserve",
        "metadata",
        "tail",
        "columns",
        "disks needed",
    ]);
    push(page, format_args!("<div><table><tr>{head}</tr>"));
    for answer in &plan.answers {
        let Some(room) = &answer.room else {
            let problem = escaped(answer.problem.as_deref().unwrap_or_default());
            push(
                page,
                format_args!(
                    "<tr><td>{}</td><td class=\"l\" colspan=\"12\">{problem}</td></tr>",
                    escaped(&title(answer))
                ),
            );
            continue;
        };
        let optional = |of: Option<u64>| of.map(bytes).unwrap_or_default();
        let row = cells(&[
            title(answer),
            bytes(room.usable_bytes),
            optional(answer.heals_disk_bytes),
            optional(answer.heals_domain_bytes),
            bytes(room.redundancy_bytes),
            bytes(room.write_cache_bytes),
            bytes(room.tables_bytes),
            bytes(room.stranded_bytes),
            bytes(room.reserve_bytes),
            bytes(room.metadata_bytes),
            bytes(room.tail_bytes),
            answer.columns.map(|columns| columns.to_string()).unwrap_or_default(),
            answer.minimum_disks.to_string(),
        ]);
        push(page, format_args!("<tr>{row}</tr>"));
    }
    push(page, format_args!("</table></div>"));
}

fn push_disks(page: &mut String, plan: &Plan) {
    push(
        page,
        format_args!(
            "<h2>Disk by disk</h2><p>One bar for each disk, as tall as the disk is large, fault domains apart. What is stranded \
         lies in pieces that no further row of that layout can use.</p>"
        ),
    );
    page.push_str(&keys(&charts::DISK_PARTS));
    page.push_str(&charts::disks(plan));
}

fn push_losses(page: &mut String, plan: &Plan) {
    let basis = plan.answers.iter().flat_map(|answer| &answer.losses).map(|losses| losses.basis);
    let by_rule = basis.clone().any(|basis| basis == Basis::Rule);
    let by_rows = basis.clone().any(|basis| basis == Basis::Rows);
    push(
        page,
        format_args!(
            "<h2>What failures lose</h2><p>Of all sets of so many disks or fault domains, the share whose loss at one time loses data.</p>"
        ),
    );
    for (is_used, text) in [
        (by_rows, "Counted on the rows of a pool that was filled to the brim."),
        (
            by_rule,
            "Counted by the rule that all disks which may share a row do, as in a pool of very many rows.",
        ),
    ] {
        if is_used {
            push(page, format_args!("<p class=\"soft\">{text}</p>"));
        }
    }
    for unit in [Unit::Disks, Unit::Domains] {
        page.push_str(&charts::losses(plan, unit));
    }
    let most = plan.answers.iter().flat_map(|answer| &answer.losses).map(|losses| losses.rows.len()).max();
    let mut head = vec!["resiliency".to_owned(), "what fails".to_owned()];
    head.extend((1..=most.unwrap_or(0)).map(|failed| format!("{failed} at once")));
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    push(page, format_args!("<div><table><tr>{}<th class=\"l\">for example</th></tr>", heads(&head)));
    for answer in &plan.answers {
        for losses in &answer.losses {
            push_loss_row(page, answer, losses, head.len() - 2);
        }
    }
    push(page, format_args!("</table></div>"));
}

fn push_loss_row(page: &mut String, answer: &Answer, losses: &Losses, columns: usize) {
    let unit = if losses.unit == Unit::Disks { "disks" } else { "domains" };
    let mut row = vec![title(answer), unit.to_owned()];
    let count = |at: usize| losses.rows.get(at).map(|row| format!("{} of {}", row.losing, row.sets));
    row.extend((0..columns).map(|at| count(at).unwrap_or_default()));
    let example = match (losses.first_losing.as_slice(), losses.first_survived.as_slice()) {
        ([], _) => String::new(),
        (lost, []) => lost.join(", "),
        (lost, survived) => format!("{}; not {}", lost.join(", "), survived.join(", ")),
    };
    push(page, format_args!("<tr>{}<td class=\"l\">{}</td></tr>", cells(&row), escaped(&example)));
}

fn push_additions(page: &mut String, plan: &Plan) {
    let text = if plan.additions_are_cumulative {
        "What each disk brings when they are added one after another."
    } else {
        "What one more disk of a size brings, each by itself and in a fault domain of its own."
    };
    push(page, format_args!("<h2>More disks</h2><p>{text}</p>"));
    page.push_str(&charts::additions(plan));
    push(
        page,
        format_args!(
            "<table><tr>{}</tr>",
            heads(&["added", "size", "resiliency", "usable with it", "more by"])
        ),
    );
    let most = plan.answers.iter().map(|answer| answer.additions.len()).max().unwrap_or(0);
    for at in 0..most {
        for answer in &plan.answers {
            let Some(added) = answer.additions.get(at) else { continue };
            let row = cells(&[
                added.name.clone(),
                bytes(added.size_bytes),
                title(answer),
                bytes(added.usable_bytes),
                bytes(added.gain_bytes),
            ]);
            push(page, format_args!("<tr>{row}</tr>"));
        }
    }
    push(page, format_args!("</table>"));
}

fn push_footprint(page: &mut String, plan: &Plan) {
    let footprint = &plan.footprint;
    let space = as_sold(Bytes(footprint.space_bytes));
    push(
        page,
        format_args!(
            "<h2>Footprint of a space of {space}</h2><p>Bytes on disks for each byte of data by the number of fault domains, \
         tables aside. Nested layouts are taken with {} disks in each domain. Dashed lines are not in this version.</p>",
            footprint.disks_within
        ),
    );
    page.push_str(&charts::footprint_keys(footprint));
    page.push_str(&charts::footprint(footprint));
    push(page, format_args!("<div><table><tr><th>resiliency</th>"));
    (1..=footprint.domains_max).for_each(|domains| push(page, format_args!("<th>{domains}</th>")));
    push(page, format_args!("</tr>"));
    for line in &footprint.lines {
        push(page, format_args!("<tr><td>{}</td>", escaped(&line.title)));
        for domains in 1..=footprint.domains_max {
            match line.cells.iter().find(|cell| cell.domains == domains) {
                Some(cell) => {
                    let hundredths = cell.factor.hundredths();
                    let tip = format!("{}: {} bytes on disks", cell.code, cell.bytes);
                    push(
                        page,
                        format_args!(
                            "<td title=\"{}\">{}.{:02}</td>",
                            escaped(&tip),
                            hundredths / 100,
                            hundredths % 100
                        ),
                    );
                }
                None => push(page, format_args!("<td></td>")),
            }
        }
        push(page, format_args!("</tr>"));
    }
    push(page, format_args!("</table></div>"));
}
