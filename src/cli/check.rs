//! `spillgate check`.

use super::Failure;

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Runs the verb.
pub(crate) fn run(_args: &Args) -> Result<(), Failure> {
    Ok(())
}
