//! Aligned tables: a line of headings, then rows; columns two spaces apart, nothing drawn.

use crate::terminal::paint::{Paint, Tone};

/// A column of text is cut to this width at least.
const TEXT_WIDTH_MIN: usize = 12;
/// Stands where text was cut out.
const CUT: char = '…';

/// Where the text of a column stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    /// Names and words.
    Left,
    /// Sentences, on the left: one that is too long loses its end.
    Sentence,
    /// Numbers, so that digits of one weight stand below each other.
    Right,
}

/// One field of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// A field that stands out in a tone of its own.
    pub(crate) fn toned(text: impl Into<String>, tone: Tone) -> Self {
        let text = text.into();
        // A name from elsewhere keeps to its line and its column.
        let text =
            if text.contains(['\n', '\t']) { text.replace('\n', "\\n").replace('\t', "\\t") } else { text };
        Self { text, tone }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::toned(text, Tone::Plain)
    }
}

/// A table being filled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<Cell>>,
    /// Headings of columns that a narrow terminal does without, the first to go first.
    droppable: Vec<&'static str>,
}

impl Table {
    /// Names and values, one pair a line.
    pub(crate) fn facts() -> Self {
        Self::new(&[("", Align::Left), ("", Align::Left)])
    }

    /// A table with these headings.
    pub(crate) fn new(columns: &[(&'static str, Align)]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new(), droppable: Vec::new() }
    }

    /// The same table, which leaves these columns out where it does not fit otherwise, the first one first.
    pub(crate) fn dropping(self, headings: &[&'static str]) -> Self {
        Self { droppable: headings.to_vec(), ..self }
    }

    /// Returns names and values of a table of facts, the names as wide as the widest, with `indent` spaces in front.
    pub(crate) fn facts_in_lines(&self, indent: usize, paint: Paint) -> Vec<(String, String)> {
        let wide = self.width(0);
        let line = |row: &Vec<Cell>| {
            let [name, value] = row.as_slice() else { return None };
            let label = format!("{}{:wide$}  ", " ".repeat(indent), name.text);
            Some((label, paint.tone(&value.text, value.tone)))
        };
        self.rows.iter().filter_map(line).collect()
    }

    /// One more row, with a field for each column.
    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        assert_eq!(cells.len(), self.columns.len(), "a row has a field for each column");
        self.rows.push(cells);
    }

    /// Whether there is nothing to show.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The lines, each with `indent` spaces in front. A column in which no row says anything is left out.
    pub(crate) fn render(&self, indent: usize, paint: Paint) -> String {
        let shown: Vec<usize> = (0..self.columns.len()).filter(|at| self.is_used(*at)).collect();
        let mut lines = String::new();
        let headings: Vec<Cell> =
            self.columns.iter().map(|(heading, _)| Cell::toned(*heading, Tone::Heading)).collect();
        let has_headings = self.columns.iter().any(|(heading, _)| !heading.is_empty());
        for row in std::iter::once(&headings).filter(|_| has_headings).chain(&self.rows) {
            let mut line = " ".repeat(indent);
            for (place, at) in shown.iter().enumerate() {
                let (Some(cell), Some((_, align))) = (row.get(*at), self.columns.get(*at)) else { continue };
                let is_last = place + 1 == shown.len();
                let gap = if place == 0 { "" } else { "  " };
                line.push_str(gap);
                line.push_str(&padded(cell, self.width(*at), *align, is_last, paint));
            }
            lines.push_str(line.trim_end());
            lines.push('\n');
        }
        lines
    }

    /// The same table with texts cut until it fits into so many columns, the widest first. Where that is not enough, columns that it
    /// may do without go. Numbers stay whole, and so do headings; a table of many numbers may stay wider.
    pub(crate) fn within(&self, columns: usize) -> Self {
        let mut whole = self.clone();
        for heading in &self.droppable {
            let cut = whole.cut_to(columns);
            if cut.total_width() <= columns {
                return cut;
            }
            whole = whole.without(heading);
        }
        whole.cut_to(columns)
    }

    /// The same table without a column.
    fn without(mut self, heading: &str) -> Self {
        if let Some(at) = self.columns.iter().position(|(one, _)| *one == heading) {
            self.columns.remove(at);
            self.rows.iter_mut().filter(|row| at < row.len()).for_each(|row| drop(row.remove(at)));
        }
        self
    }

    fn total_width(&self) -> usize {
        let used: Vec<usize> = (0..self.columns.len()).filter(|at| self.is_used(*at)).collect();
        let widths: usize = used.iter().map(|at| self.width(*at)).sum();
        widths + 2 * used.len().saturating_sub(1)
    }

    fn cut_to(&self, columns: usize) -> Self {
        let mut cut = self.clone();
        let used: Vec<usize> = (0..self.columns.len()).filter(|at| self.is_used(*at)).collect();
        loop {
            let over = cut.total_width().saturating_sub(columns);
            let limit = |at: usize| {
                let (heading, align) = cut.columns.get(at)?;
                let least = width(heading).max(TEXT_WIDTH_MIN);
                (*align != Align::Right && cut.width(at) > least).then_some((
                    cut.width(at),
                    least,
                    at,
                    *align,
                ))
            };
            let mut limits: Vec<_> = used.iter().filter_map(|at| limit(*at)).collect();
            limits.sort_unstable_by_key(|(wide, least, at, _)| (*wide, *least, *at));
            let Some((wide, least, at, align)) = limits.pop().filter(|_| over > 0) else { return cut };
            // No narrower than the next one as long as that can be cut too.
            let next = limits.last().map_or(0, |(wide, ..)| *wide).min(wide - 1);
            let wanted = wide.saturating_sub(over).max(least).max(next);
            for cell in cut.rows.iter_mut().filter_map(|row| row.get_mut(at)) {
                cell.text = shortened(&cell.text, wanted, align);
            }
        }
    }

    fn is_used(&self, at: usize) -> bool {
        self.rows.iter().filter_map(|row| row.get(at)).any(|cell| !cell.text.is_empty())
    }

    fn width(&self, at: usize) -> usize {
        let heading = self.columns.get(at).map_or(0, |(heading, _)| width(heading));
        self.rows.iter().filter_map(|row| row.get(at)).map(|cell| width(&cell.text)).fold(heading, usize::max)
    }
}

fn width(text: &str) -> usize {
    text.chars().count()
}

/// A text in so many places. Its ends stay, which tell paths and names apart, and the middle is cut out; a sentence loses its end.
fn shortened(text: &str, wanted: usize, align: Align) -> String {
    let length = width(text);
    if length <= wanted {
        return text.to_owned();
    }
    let kept = wanted.saturating_sub(1);
    if align == Align::Sentence {
        let begin: String = text.chars().take(kept).collect();
        return format!("{}{CUT}", begin.trim_end());
    }
    let tail = kept - kept / 3;
    let head: String = text.chars().take(kept / 3).collect();
    let rest: String = text.chars().skip(length - tail).collect();
    format!("{head}{CUT}{rest}")
}

/// The field with spaces around it; colour wraps the text alone, so that it cannot shift the next column.
fn padded(cell: &Cell, wanted: usize, align: Align, is_last: bool, paint: Paint) -> String {
    let spaces = " ".repeat(wanted.saturating_sub(width(&cell.text)));
    let text = paint.tone(&cell.text, cell.tone);
    match align {
        Align::Left | Align::Sentence if is_last => text,
        Align::Left | Align::Sentence => text + &spaces,
        Align::Right => spaces + &text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Table {
        let mut table = Table::new(&[("NAME", Align::Left), ("SIZE", Align::Right), ("NOTE", Align::Left)]);
        table.row(vec!["tank".into(), "1.50 GiB".into(), "".into()]);
        table.row(vec!["größer".into(), "12 B".into(), "".into()]);
        table
    }

    #[test]
    fn columns_stand_below_each_other_and_empty_ones_are_left_out() {
        assert_eq!(
            sample().render(2, Paint::Never),
            "  NAME        SIZE\n  tank    1.50 GiB\n  größer      12 B\n"
        );
    }

    /// A path that is too long for the terminal loses its middle; numbers and short columns stay as they are.
    #[test]
    fn a_table_is_cut_to_the_width_of_a_terminal() {
        let mut table = Table::new(&[("DISK", Align::Right), ("STATE", Align::Left), ("PATH", Align::Left)]);
        let path = "/dev/disk/by-id/scsi-SATA_Maker_Model_S3R1AL-part1";
        table.row(vec!["10".into(), "present".into(), path.into()]);
        table.row(vec!["9".into(), "absent".into(), "/dev/sdb".into()]);
        let whole = table.render(0, Paint::Never);
        assert_eq!(table.within(200).render(0, Paint::Never), whole);
        for columns in 27..80 {
            let lines = table.within(columns).render(0, Paint::Never);
            assert!(lines.lines().all(|line| width(line) <= columns), "{columns}:\n{lines}");
            assert!(
                lines.contains("  10  present  /de") && lines.contains("-part1\n"),
                "{columns}:\n{lines}"
            );
            assert!(lines.contains("   9  absent   /dev/sdb\n"), "{columns}:\n{lines}");
        }
        // Nothing is left that could be cut.
        assert_eq!(table.within(1), table.within(27));
    }

    /// Scenario: a path and a sentence are too long together. Both are cut, the longer one first; the sentence keeps its beginning.
    #[test]
    fn several_texts_are_cut_to_like_widths() {
        let mut table = Table::new(&[("WHAT", Align::Left), ("RESULT", Align::Sentence)]);
        table.row(vec!["a".repeat(60).into(), format!("two rows {}", "stay ".repeat(10)).into()]);
        let lines = table.within(62).render(0, Paint::Never);
        let fields: Vec<&str> = lines.lines().nth(1).unwrap().split("  ").collect();
        assert!(fields.iter().all(|field| (28..=32).contains(&width(field))), "{lines}");
        assert!(fields[1].starts_with("two rows stay") && fields[1].ends_with('…'), "{lines}");
    }

    /// Scenario: a table with long names at every width. Columns that may go do so in their order, and only where cutting names is
    /// not enough; numbers stay whole and below each other.
    #[test]
    fn a_narrow_terminal_gets_fewer_columns_of_whole_numbers() {
        let mut table = Table::new(&[
            ("VOLUME", Align::Left),
            ("FILE SYSTEM", Align::Left),
            ("SIZE", Align::Right),
            ("STATE", Align::Left),
            ("MOUNTED AT", Align::Left),
        ])
        .dropping(&["FILE SYSTEM", "STATE"]);
        let name = "tank/accounting-of-the-year";
        for (size, at) in [("1.50 GiB", "/srv/tank/accounting-of-the-year"), ("12 TiB", "not mounted")] {
            table.row(vec![name.into(), "xfs".into(), size.into(), "being deleted".into(), at.into()]);
        }
        let headings =
            |columns| table.within(columns).render(0, Paint::Never).lines().next().unwrap().to_owned();
        assert!(headings(100).contains("FILE SYSTEM") && headings(80).contains("FILE SYSTEM"));
        assert!(!headings(60).contains("FILE SYSTEM") && headings(60).contains("STATE"), "{}", headings(60));
        assert!(!headings(40).contains("STATE"), "{}", headings(40));
        for columns in 36..100 {
            let lines = table.within(columns).render(0, Paint::Never);
            assert!(lines.lines().all(|line| width(line) <= columns), "{columns}:\n{lines}");
            let ends: Vec<Option<usize>> = ["SIZE", "1.50 GiB", "12 TiB"]
                .iter()
                .zip(lines.lines())
                .map(|(text, line)| line.find(text).map(|at| width(&line[..at]) + width(text)))
                .collect();
            assert!(ends[0].is_some() && ends.iter().all(|end| *end == ends[0]), "{columns}:\n{lines}");
        }
    }

    #[test]
    fn colour_does_not_shift_columns() {
        let mut table = sample();
        table.row(vec![Cell::toned("x", Tone::Bad), "1 B".into(), "note".into()]);
        let plain = table.render(0, Paint::Never);
        let coloured = table.render(0, Paint::Always);
        assert_ne!(plain, coloured);
        let mut stripped = String::new();
        let mut rest = coloured.as_str();
        while let Some((before, after)) = rest.split_once('\x1b') {
            stripped.push_str(before);
            rest = after.split_once('m').unwrap().1;
        }
        stripped.push_str(rest);
        assert_eq!(stripped, plain);
    }
}
