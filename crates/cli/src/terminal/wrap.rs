//! Lines that are too long for a terminal, broken between words: what follows stands below what it belongs to.

/// Narrower terminals break lines as they like.
const COLUMNS_MIN: usize = 40;

/// The columns of a terminal that lines are broken for.
pub(crate) fn columns_of(columns: u16) -> Option<usize> {
    Some(usize::from(columns)).filter(|columns| *columns >= COLUMNS_MIN)
}

/// A line behind a label, with its end. Commands, which stand in `` ` ``, stay whole, so that they can be copied.
pub(crate) fn hanging(label: &str, text: &str, columns: Option<usize>) -> String {
    let indent = label.chars().count();
    let (mut shown, mut used) = (label.to_owned(), indent);
    for (number, word) in words(text).into_iter().enumerate() {
        let width = word.chars().count();
        let is_first = used == indent;
        if !is_first && columns.is_some_and(|columns| used + 1 + width > columns) {
            shown.push('\n');
            shown.push_str(&" ".repeat(indent));
            used = indent;
        } else if number > 0 {
            shown.push(' ');
            used += 1;
        }
        shown.push_str(word);
        used += width;
    }
    shown.push('\n');
    shown
}

/// What fits on one line, the end left out where it does not.
pub(crate) fn cut(text: &str, columns: Option<usize>) -> String {
    match columns {
        Some(columns) if text.chars().count() >= columns => text.chars().take(columns - 1).collect(),
        _ => text.to_owned(),
    }
}

/// The words of a text; what stands in `` ` `` is one of them, with what touches it.
fn words(text: &str) -> Vec<&str> {
    let mut is_quoted = false;
    let ends = move |c: char| {
        is_quoted ^= c == '`';
        c == ' ' && !is_quoted
    };
    text.split(ends).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "attach /dev/sdb and `dolmen disk online tank 1`, or `dolmen disk replace tank 1 NEW`";

    /// Of any width, lines hold what fits, and together all of it; commands are whole.
    #[test]
    fn lines_end_between_words_and_commands_stay_whole() {
        for columns in 10..120 {
            let shown = hanging("  to do  ", TEXT, Some(columns));
            let lines: Vec<&str> = shown.lines().collect();
            let bodies: Vec<&str> = lines.iter().map(|line| &line[9..]).collect();
            assert_eq!(bodies.join(" "), TEXT, "{columns}");
            assert!(lines.iter().skip(1).all(|line| line.starts_with("         ")), "{shown}");
            assert!(shown.contains("`dolmen disk online tank 1`,"), "{shown}");
            let fits = |line: &&str| line.chars().count() <= columns || words(&line[9..]).len() == 1;
            assert!(lines.iter().all(fits), "{columns}\n{shown}");
        }
        assert_eq!(hanging("  ", TEXT, None), format!("  {TEXT}\n"));
        assert_eq!(hanging("  ", "", Some(80)), "  \n");
    }

    #[test]
    fn what_is_written_over_keeps_to_its_line() {
        assert_eq!(cut("größer", Some(6)), "größe");
        assert_eq!(cut("größer", Some(7)), "größer");
        assert_eq!(cut("größer", None), "größer");
        assert_eq!((columns_of(39), columns_of(80)), (None, Some(80)));
    }
}
