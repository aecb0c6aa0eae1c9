//! The drawings of the page. Colours are told apart by people who see some colours alike (Okabe and Ito, 2008).

use dolmen_page::{Anchor, Area, Drawing, LINES, Point, Stroke, keys, scaled};
use dolmen_units::Bytes;

use super::title;
use crate::disks::Disk;
use crate::footprint::{Footprint, FootprintLine};
use crate::loss::{LossRow, Unit};
use crate::plan::{Answer, Plan};
use crate::sold::as_sold;

const HEALS: &str = "#0072b2";
const USABLE: &str = "#56b4e9";
const REDUNDANCY: &str = "#009e73";
const OVERHEAD: &str = "#999999";
const STRANDED: &str = "#d55e00";
const KEPT: &str = "#cfcfcf";

/// Parts of all bytes, in the order of the bars.
pub(crate) const PARTS: [(&str, &str); 6] = [
    (HEALS, "usable, and heals"),
    (USABLE, "usable"),
    (REDUNDANCY, "redundancy"),
    (OVERHEAD, "write cache and tables"),
    (STRANDED, "stranded"),
    (KEPT, "reserve, metadata, tail"),
];

/// Parts of a disk, from below.
pub(crate) const DISK_PARTS: [(&str, &str); 3] =
    [(HEALS, "slabs"), (STRANDED, "stranded"), (KEPT, "reserve, metadata, tail")];

const WIDTH: u64 = 9200;
/// Room for names at the left.
const NAMES: u64 = 2300;
const LINE: u64 = 280;

/// One bar for each layout, as long as the raw size.
pub(crate) fn room(plan: &Plan) -> String {
    let shown: Vec<&Answer> = plan.answers.iter().filter(|answer| answer.room.is_some()).collect();
    let mut drawing = Drawing::new(WIDTH, LINE * rows(shown.len()) + 40);
    let length = WIDTH - NAMES - 1100;
    for (at, answer) in (0u64..).zip(&shown) {
        let Some(room) = &answer.room else { continue };
        let y = at * LINE + 40;
        drawing.text(Point { x: NAMES - 80, y: y + 150 }, Anchor::End, &title(answer));
        let heals = answer.heals_disk_bytes.unwrap_or(0).min(room.usable_bytes);
        let kept = room.reserve_bytes + room.metadata_bytes + room.tail_bytes;
        let parts = [
            heals,
            room.usable_bytes - heals,
            room.redundancy_bytes,
            room.write_cache_bytes + room.tables_bytes,
            room.stranded_bytes,
            kept,
        ];
        let mut before = 0;
        for ((colour, name), part) in PARTS.iter().zip(parts) {
            let from = scaled(before, plan.raw_bytes, length);
            before += part;
            let to = scaled(before, plan.raw_bytes, length);
            let area = Area { at: Point { x: NAMES + from, y }, width: to - from, height: 200 };
            drawing.area(area, colour, &format!("{}: {name}, {}", answer.title, Bytes(part)));
        }
        let end = Point { x: NAMES + length + 80, y: y + 150 };
        drawing.text(end, Anchor::Start, &Bytes(room.usable_bytes).to_string());
    }
    drawing.finish("usable room for each resiliency")
}

fn rows(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

/// Disks as columns, one field of them for each layout.
pub(crate) fn disks(plan: &Plan) -> String {
    const FIELD: u64 = 900;
    let shown: Vec<&Answer> = plan.answers.iter().filter(|answer| answer.room.is_some()).collect();
    let mut drawing = Drawing::new(WIDTH, (FIELD + 120) * rows(shown.len()) + 20);
    let order = by_domain(&plan.disks);
    let largest = plan.disks.iter().map(|disk| disk.size_bytes).max().unwrap_or(1);
    let places = rows(plan.disks.len()) + rows(order.len());
    let step = ((WIDTH - NAMES) / places.max(1)).min(420);
    let gap = (step / 6).min(40);
    for (at, answer) in (0u64..).zip(&shown) {
        let Some(room) = &answer.room else { continue };
        let bottom = at * (FIELD + 120) + FIELD + 20;
        drawing.text(Point { x: NAMES - 80, y: bottom - 20 }, Anchor::End, &title(answer));
        let mut x = NAMES;
        for members in &order {
            for member in members {
                let (Some(disk), Some(stranded)) = (plan.disks.get(*member), room.stranded.get(*member))
                else {
                    continue;
                };
                let base = Point { x, y: bottom };
                disk_column(
                    &mut drawing,
                    disk,
                    *stranded,
                    base,
                    step.saturating_sub(gap).max(10),
                    (largest, FIELD),
                );
                x += step;
            }
            x += step / 2;
        }
        drawing.rule(Point { x: NAMES, y: bottom }, Point { x: WIDTH, y: bottom });
    }
    drawing.finish("each disk and what is stranded on it")
}

/// One disk, from its base up.
fn disk_column(
    drawing: &mut Drawing,
    disk: &Disk,
    stranded: u64,
    base: Point,
    width: u64,
    scale: (u64, u64),
) {
    let (largest, field) = scale;
    let slabs = disk.claimable_bytes() - stranded;
    let kept = disk.size_bytes - disk.claimable_bytes();
    let mut below = 0;
    for ((colour, name), part) in DISK_PARTS.iter().zip([slabs, stranded, kept]) {
        let from = scaled(below, largest, field);
        below += part;
        let to = scaled(below, largest, field);
        let at = Point { x: base.x, y: base.y - to };
        let domain = disk.domain.as_ref().map(|domain| format!(" in {domain}")).unwrap_or_default();
        let tip =
            format!("{}{domain}, {}: {name} {}", disk.name, as_sold(Bytes(disk.size_bytes)), Bytes(part));
        drawing.area(Area { at, width, height: to - from }, colour, &tip);
    }
}

fn by_domain(disks: &[Disk]) -> Vec<Vec<usize>> {
    let mut groups: Vec<(Option<&String>, Vec<usize>)> = Vec::new();
    for (at, disk) in disks.iter().enumerate() {
        let known = groups.iter_mut().find(|(name, _)| name.is_some() && *name == disk.domain.as_ref());
        match known {
            Some((_, members)) => members.push(at),
            None => groups.push((disk.domain.as_ref(), vec![at])),
        }
    }
    groups.into_iter().map(|(_, members)| members).collect()
}

/// A field for each layout and number of failures, darker the more sets lose data.
pub(crate) fn losses(plan: &Plan, unit: Unit) -> String {
    let found: Vec<(&Answer, &[LossRow])> = plan
        .answers
        .iter()
        .filter_map(|answer| {
            let losses = answer.losses.iter().find(|losses| losses.unit == unit)?;
            Some((answer, losses.rows.as_slice()))
        })
        .collect();
    let most = found.iter().map(|(_, rows)| rows.len()).max().unwrap_or(0);
    if most == 0 {
        return String::new();
    }
    let mut drawing = Drawing::new(WIDTH, LINE * (rows(found.len()) + 1) + 40);
    let step = ((WIDTH - NAMES) / rows(most)).min(900);
    let unit = if unit == Unit::Disks { "disks" } else { "domains" };
    drawing.text(Point { x: NAMES - 80, y: 160 }, Anchor::End, &format!("{unit} lost at once"));
    for failed in 1..=rows(most) {
        let at = Point { x: NAMES + (failed - 1) * step + step / 2, y: 160 };
        drawing.text(at, Anchor::Middle, &failed.to_string());
    }
    for (at, (answer, losses)) in (1u64..).zip(&found) {
        let y = at * LINE;
        drawing.text(Point { x: NAMES - 80, y: y + 170 }, Anchor::End, &title(answer));
        for (place, row) in (0u64..).zip(*losses) {
            let corner = Point { x: NAMES + place * step, y };
            let tip = format!("{} of {} sets of {} {unit}", row.losing, row.sets, row.failed);
            let area = Area { at: corner, width: step - 30, height: LINE - 40 };
            drawing.area(area, &shade(row), &tip);
            drawing.text(Point { x: corner.x + step / 2 - 15, y: y + 170 }, Anchor::Middle, &share(row));
        }
    }
    drawing.finish("the share of failure sets that lose data")
}

/// From pale green for none to a full orange for all; a share above none is never as pale as none.
fn shade(row: &LossRow) -> String {
    if row.losing == 0 {
        return "#009e7333".to_owned();
    }
    let strength = 40 + scaled(row.losing, row.sets, 160);
    format!("{STRANDED}{strength:02x}")
}

fn share(row: &LossRow) -> String {
    let hundredths =
        u64::try_from((u128::from(row.losing) * 10_000).div_ceil(u128::from(row.sets.max(1)))).unwrap_or(0);
    match hundredths {
        0 => "none".to_owned(),
        10_000 if row.losing == row.sets => "all".to_owned(),
        hundredths => format!("{}.{:02} %", hundredths / 100, hundredths % 100),
    }
}

/// What each added disk brings: a bar for each layout, under the disk.
pub(crate) fn additions(plan: &Plan) -> String {
    let most = plan.answers.iter().map(|answer| answer.additions.len()).max().unwrap_or(0);
    let layouts = rows(plan.answers.len());
    let height = rows(most) * (layouts * 180 + 320) + 20;
    let largest = plan.answers.iter().flat_map(|answer| &answer.additions);
    let largest = largest.map(|added| added.gain_bytes.max(added.size_bytes)).max().unwrap_or(1);
    let mut drawing = Drawing::new(WIDTH, height);
    let length = WIDTH - NAMES - 1100;
    let mut y = 20;
    for at in 0..most {
        for (place, answer) in plan.answers.iter().enumerate() {
            let Some(added) = answer.additions.get(at) else { continue };
            if place == 0 {
                let head = format!("{}, {}", added.name, as_sold(Bytes(added.size_bytes)));
                drawing.text(Point { x: NAMES, y: y + 160 }, Anchor::Start, &head);
                y += 240;
            }
            drawing.text(Point { x: NAMES - 80, y: y + 120 }, Anchor::End, &title(answer));
            let width = scaled(added.gain_bytes, largest, length);
            let area = Area { at: Point { x: NAMES, y }, width, height: 140 };
            drawing.area(area, HEALS, &format!("{}: {} more", answer.title, Bytes(added.gain_bytes)));
            let end = Point { x: NAMES + width + 80, y: y + 120 };
            drawing.text(end, Anchor::Start, &Bytes(added.gain_bytes).to_string());
            y += 180;
        }
        y += 80;
    }
    drawing.finish("what more disks bring")
}

fn line_colour(at: usize) -> &'static str {
    LINES.iter().cycle().nth(at).copied().unwrap_or(KEPT)
}

/// What the lines of the footprint are.
pub(crate) fn footprint_keys(footprint: &Footprint) -> String {
    let named: Vec<(&str, &str)> =
        footprint.lines.iter().enumerate().map(|(at, line)| (line_colour(at), line.title.as_str())).collect();
    keys(&named)
}

/// Footprints against fault domains.
pub(crate) fn footprint(footprint: &Footprint) -> String {
    const LEFT: u64 = 500;
    const TOP: u64 = 200;
    const HEIGHT: u64 = 3200;
    let mut drawing = Drawing::new(WIDTH, TOP + HEIGHT + 500);
    let factors = footprint.lines.iter().flat_map(|line| &line.cells).map(|cell| cell.factor.hundredths());
    let top = factors.max().unwrap_or(100).div_ceil(100).max(2) * 100;
    let height = |hundredths: u64| TOP + HEIGHT - scaled(hundredths.saturating_sub(100), top - 100, HEIGHT);
    let steps = u64::from(footprint.domains_max.max(2) - 1);
    let place = |domains: u32| LEFT + scaled(u64::from(domains.saturating_sub(1)), steps, WIDTH - LEFT - 200);
    for half in 2..=top / 50 {
        let (y, hundredths) = (height(half * 50), half * 50);
        drawing.rule(Point { x: LEFT, y }, Point { x: WIDTH - 200, y });
        let label = format!("{}.{}", hundredths / 100, hundredths % 100 / 10);
        drawing.text(Point { x: LEFT - 80, y: y + 40 }, Anchor::End, &label);
    }
    for domains in 1..=footprint.domains_max {
        let at = Point { x: place(domains), y: TOP + HEIGHT + 200 };
        drawing.text(at, Anchor::Middle, &domains.to_string());
    }
    drawing.text(Point { x: WIDTH / 2, y: TOP + HEIGHT + 420 }, Anchor::Middle, "fault domains");
    for (at, line) in footprint.lines.iter().enumerate() {
        let point = |cell: &crate::footprint::FootprintCell| Point {
            x: place(cell.domains),
            y: height(cell.factor.hundredths()),
        };
        let points: Vec<Point> = line.cells.iter().map(point).collect();
        drawing.curve(&points, line_colour(at), stroke(line), &line.title);
    }
    drawing.finish("footprint by the number of fault domains")
}

fn stroke(line: &FootprintLine) -> Stroke {
    if line.in_this_version { Stroke::Solid } else { Stroke::Dashed }
}
