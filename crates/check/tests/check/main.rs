//! What is found in pools that were cut short, and in those that were damaged.

mod crashed;
mod damage;
