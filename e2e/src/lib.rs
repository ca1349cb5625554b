//! Tests that need a network, a control plane or a browser; see `tests/`. They have a package of
//! their own, so that what only they need is built only for them.
//!
//! Worked number: the first test that asks for the program waits for its build, the others get the
//! same path at once.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// The real program, built as this package is (debug or release), once a test run.
///
/// # Panics
/// If the build fails: there is nothing to test then.
#[must_use]
pub fn spillgate() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--package", "spillgate", "--bin", "spillgate"]);
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        let status = build.current_dir(env!("CARGO_MANIFEST_DIR")).status();
        assert!(status.is_ok_and(|s| s.success()), "spillgate must build before it is tested");
        // target/debug/deps/inspect_url-... is this test; the program lies two folders above.
        let test = std::env::current_exe().expect("the test's own path");
        let folder = test.ancestors().nth(2).expect("target/<profile>");
        folder.join(format!("spillgate{}", std::env::consts::EXE_SUFFIX))
    })
}
