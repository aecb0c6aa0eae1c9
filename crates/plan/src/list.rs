//! Lists of disks as people write them: `[NAME=][COUNTx]SIZE[@DOMAIN]`, on the command line or in a file with one or
//! more to a line and `#` before comments.

use dolmen_disk::DISK_BYTES_MIN;
use dolmen_units::{Bytes, DISKS_MAX};

use crate::disks::{DISK_BYTES_MAX, Disk, Disks};
use crate::error::{ListError, ListFault, Place};

/// Characters of a name, at most.
const NAME_CHARS_MAX: usize = 64;

/// A list that is being read.
#[derive(Debug, Default)]
pub struct DiskList {
    disks: Vec<Disk>,
}

impl DiskList {
    /// An empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A list that goes on behind these disks.
    #[must_use]
    pub fn after(disks: &Disks) -> Self {
        Self { disks: disks.list().to_vec() }
    }

    /// Adds what was typed.
    ///
    /// # Errors
    /// [`ListError::Disk`].
    pub fn add_typed(&mut self, text: &str) -> Result<(), ListError> {
        let place = || Place::Typed { text: text.to_owned() };
        self.add(text).map_err(|fault| ListError::Disk { place: place(), fault })
    }

    /// Adds the lines of a file.
    ///
    /// # Errors
    /// [`ListError::Disk`] with the line.
    pub fn add_file(&mut self, file: &str, content: &str) -> Result<(), ListError> {
        for (line, whole) in (1..).zip(content.lines()) {
            let written = whole.split_once('#').map_or(whole, |(before, _)| before);
            for text in written.split_whitespace() {
                let place = || Place::Line { file: file.to_owned(), line, text: text.to_owned() };
                self.add(text).map_err(|fault| ListError::Disk { place: place(), fault })?;
            }
        }
        Ok(())
    }

    /// Adds a disk that was found.
    ///
    /// # Errors
    /// [`ListError::Disk`] with its path.
    pub fn add_found(&mut self, path: &str, size: Bytes) -> Result<(), ListError> {
        let place = || Place::Found { path: path.to_owned() };
        self.push(path.to_owned(), size, None).map_err(|fault| ListError::Disk { place: place(), fault })
    }

    /// The list as it stands.
    ///
    /// # Errors
    /// [`ListError::Empty`].
    pub fn finish(self) -> Result<Disks, ListError> {
        if self.disks.is_empty() {
            return Err(ListError::Empty);
        }
        Ok(Disks::new(self.disks))
    }

    /// Everything that was read, which may be nothing.
    #[must_use]
    pub fn into_disks(self) -> Vec<Disk> {
        self.disks
    }

    fn add(&mut self, text: &str) -> Result<(), ListFault> {
        let (name, rest) = match text.split_once('=') {
            Some((name, rest)) => (Some(checked_name(name)?), rest),
            None => (None, text),
        };
        let (amount, domain) = match rest.rsplit_once('@') {
            Some((amount, domain)) => (amount, Some(checked_name(domain)?)),
            None => (rest, None),
        };
        let (count, size) = counted(amount)?;
        let size: Bytes = size.parse().map_err(ListFault::Size)?;
        for number in 1..=count {
            let name = match &name {
                Some(name) if count == 1 => name.clone(),
                Some(name) => format!("{name}{number}"),
                None => self.free_name(),
            };
            self.push(name, size, domain.clone())?;
        }
        Ok(())
    }

    fn free_name(&self) -> String {
        let mut number = self.disks.len() + 1;
        while self.has(&format!("disk{number}")) {
            number += 1;
        }
        format!("disk{number}")
    }

    fn has(&self, name: &str) -> bool {
        self.disks.iter().any(|disk| disk.name == name)
    }

    fn push(&mut self, name: String, size: Bytes, domain: Option<String>) -> Result<(), ListFault> {
        if self.has(&name) {
            return Err(ListFault::Twice { found: name });
        }
        if self.disks.len() >= DISKS_MAX {
            return Err(ListFault::TooMany);
        }
        if size > DISK_BYTES_MAX {
            return Err(ListFault::TooLarge { found: size });
        }
        debug_assert!(DISK_BYTES_MIN < DISK_BYTES_MAX, "some size lies between");
        let disk = Disk::new(name, size, domain).ok_or(ListFault::TooSmall { found: size })?;
        self.disks.push(disk);
        Ok(())
    }
}

/// A number before an `x`, and the size behind it.
fn counted(text: &str) -> Result<(usize, &str), ListFault> {
    let Some((count, size)) = text.split_once(['x', 'X']) else { return Ok((1, text)) };
    // In `8XB` there is an unknown unit, not a number of disks.
    if !size.starts_with(|c: char| c.is_ascii_digit()) {
        return Ok((1, text));
    }
    let number = count.parse().ok().filter(|number| (1..=DISKS_MAX).contains(number));
    number.map(|number| (number, size)).ok_or_else(|| ListFault::Count { found: count.to_owned() })
}

fn checked_name(text: &str) -> Result<String, ListFault> {
    let is_fit = |c: char| !c.is_control() && !c.is_whitespace() && !matches!(c, '=' | '@');
    let length = text.chars().count();
    if (1..=NAME_CHARS_MAX).contains(&length) && text.chars().all(is_fit) {
        return Ok(text.to_owned());
    }
    Err(ListFault::Name { found: text.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(texts: &[&str]) -> Result<Vec<(String, u64, Option<String>)>, String> {
        let mut list = DiskList::new();
        for text in texts {
            list.add_typed(text).map_err(|error| error.to_string())?;
        }
        let disks = list.into_disks();
        Ok(disks.into_iter().map(|disk| (disk.name, disk.size_bytes, disk.domain)).collect())
    }

    #[test]
    fn counts_names_and_domains_are_read() {
        let found = read(&["2x8TB@n1", "bay=2x1T", "x=3TB@n2", "500GB"]).unwrap();
        let names: Vec<&str> = found.iter().map(|(name, _, _)| name.as_str()).collect();
        assert_eq!(names, ["disk1", "disk2", "bay1", "bay2", "x", "disk6"]);
        assert_eq!(found[0].1, 8_000_000_000_000);
        assert_eq!(found[2].1, 1 << 40);
        assert_eq!((found[1].2.as_deref(), found[3].2.as_deref()), (Some("n1"), None));
    }

    /// Each way to be wrong names the text and what would do.
    #[test]
    fn nonsense_is_refused_with_what_would_do() {
        for (texts, needle) in [
            (vec!["8Q"], "disk \"8Q\": \"8Q\" is not a size"),
            (vec![""], "disk \"\": \"\" is not a size"),
            (vec!["-1T"], "is not a size"),
            (vec!["0"], "it has 0 B; a disk of a pool has at least 64 MiB"),
            (vec!["63M"], "at least 64 MiB"),
            (vec!["2P"], "the largest disk that is planned for has 1 PiB"),
            (vec!["9E"], "more than the largest size"),
            (vec!["0x8T"], "\"0\" is no number of disks; write 1 to 240"),
            (vec!["241x8T"], "\"241\" is no number of disks"),
            (vec!["x8T"], "\"\" is no number of disks"),
            (vec!["=8T"], "\"\" cannot be a name"),
            (vec!["8T@"], "\"\" cannot be a name"),
            (vec!["a=8T@b@c"], "is not a size"),
            (vec!["a=8T", "a=9T"], "there is a disk named \"a\" already"),
            (vec!["240x8T", "8T"], "more than 240 disks"),
        ] {
            let message = read(&texts).unwrap_err();
            assert!(message.contains(needle), "{texts:?}: {message}");
        }
    }

    #[test]
    fn a_file_names_its_line() {
        let mut list = DiskList::new();
        list.add_file("a.txt", "# bays\n2x8TB  4TB@n1 # old\n\n").unwrap();
        let error = list.add_file("b.txt", "8TB\n\n 9XB\n").unwrap_err();
        assert!(error.to_string().starts_with("b.txt:3: disk \"9XB\": "), "{error}");
        assert_eq!(DiskList::new().finish(), Err(ListError::Empty));
    }
}
