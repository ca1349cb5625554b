//! Placeholder until the scanner stands.
fn main() {}
