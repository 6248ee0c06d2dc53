//! The program: see [`casework::cli`].

use std::process::ExitCode;

/// Many small allocations a request, freed on other threads than the ones that made them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    casework::cli::main()
}
