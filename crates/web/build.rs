//! Lists the files of the console, which the program holds.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let folder = Path::new(&env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?).join("console");
    let target = Path::new(&env::var("OUT_DIR").map_err(io::Error::other)?).join("console_files.rs");
    writeln!(io::stdout(), "cargo::rerun-if-changed={}", folder.display())?;
    let mut names: Vec<String> = fs::read_dir(&folder)?
        .map(|file| file.map(|file| file.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<_>>()?;
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    let mut text = String::from("static FILES: &[(&str, &[u8])] = &[\n");
    for name in names {
        let path = folder.join(&name);
        let written = writeln!(text, "    ({name:?}, include_bytes!({:?})),", path.display().to_string());
        written.map_err(io::Error::other)?;
    }
    text.push_str("];\n");
    fs::write(target, text)
}
