//! A disk of a pool, by what a request calls it.

use std::path::Path;
use std::rc::Rc;

use dolmen_block_linux::{name_of, path_of};
use dolmen_pool::Disk;

use crate::answer::Answer;
use crate::disks::below::is_on_space;
use crate::fault;
use crate::open_pool::OpenPool;

pub(crate) fn find_disk(pool: &OpenPool, what: &str) -> Answer<Rc<Disk>> {
    let found = pool.spaces.pool().members().find_disk(what).or_else(|error| {
        // A path that leads to the disk by another name, a link by its serial number for instance.
        if !Path::new(what).is_absolute() || is_on_space(Path::new(what)) {
            return Err(error);
        }
        let path = std::fs::canonicalize(path_of(Path::new(what))).map_err(|_| error.clone())?;
        pool.spaces.pool().members().find_disk(&name_of(&path))
    });
    found.map_err(|error| fault::pool(&error).on(what))
}
