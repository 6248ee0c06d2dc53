//! The program: see [`casework::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    casework::cli::main()
}
