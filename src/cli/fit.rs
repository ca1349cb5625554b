//! `spillgate fit`.

use super::Failure;

/// Arguments of `fit`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Runs the verb.
pub(crate) fn run(_args: &Args) -> Result<(), Failure> {
    Ok(())
}
