//! Profiles: what one replica can do. Files, the ones that ship, and how they are fitted.
//!
//! A profile is never typed in: `fit` makes it from measurements, with its range, its error and the
//! command that makes it again.
//!
//! Worked number: of 1 009 rows of measurements 30 are Qwen3-32B on two H100; five of them only
//! queue for KV and bound its capacity, 25 are fitted.

mod accuracy;
mod builtin;
mod file;
mod fit;
mod load;
mod nnls;
mod queueing;
mod rows;
mod steady;

pub use builtin::{builtin, builtin_names};
pub use file::{
    API_VERSION, Accuracy, BenchmarkWait, Errors, KIND, KnownBy, Limits, Metadata, ProfileFile,
    Provenance, Quantiles, Range, RowCount, Spec, Step, ValidRange,
};
pub use fit::{FitError, Fitted, Given, Memory, fit};
pub use load::{Problem, ProfileError, load};
pub use rows::{Group, MAX_BYTES as MAX_MEASUREMENT_BYTES, Refusal, Rows, RowsError, read};

/// The file as text: what `load` reads back to the same value.
///
/// # Errors
/// If the writer fails, which it does for no value of this type.
pub fn render(file: &ProfileFile) -> Result<String, serde_saphyr::ser::Error> {
    let yaml = serde_saphyr::to_string(file)?;
    Ok(format!("# Written by `spillgate fit`. To change it, measure and fit again.\n{yaml}"))
}
