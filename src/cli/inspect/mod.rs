//! `spillgate inspect`.

use super::Failure;

/// Arguments of `inspect`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Runs the verb.
pub(crate) fn run(_args: &Args) -> Result<(), Failure> {
    Ok(())
}
