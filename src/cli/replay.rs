//! `spillgate replay`.

use super::Failure;

/// Arguments of `replay`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Runs the verb.
pub(crate) fn run(_args: &Args) -> Result<(), Failure> {
    Ok(())
}
