//! What engines say: from the text of `/metrics` to the canonical samples of the core, and back.
//!
//! [`exposition`] scans the text without copying it, [`dialect`] and [`vllm`] know the names,
//! [`page`] makes one [`spillgate_core::observation::EngineSample`] an engine and says what is
//! missing, [`render()`] writes a page from samples, so that a simulated engine and a scraped one
//! are the same thing. [`second_opinion`] reads a page with somebody else's parser.
//!
//! Worked number: the waiting gauges 0, 0, 41 and 3 of a pod with four data-parallel engines are
//! four samples and a pod that waits for 44; its KV pressure is the fullest engine's, not a mean.

pub mod dialect;
pub mod exposition;
pub mod histogram;
mod number;
pub mod page;
mod reader;
pub mod render;
mod sample;
pub mod second_opinion;
pub mod vllm;

pub use page::{Page, Signal, read_page};
pub use render::render;
