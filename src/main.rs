//! The program: everything it can do is a verb, and each verb is a file in `cli/`.

use std::process::ExitCode;

fn main() -> ExitCode {
    spillgate::cli::main()
}
