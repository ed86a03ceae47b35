//! The command line, which needs neither root nor a server.

mod debug_files;
mod inspect_format;
mod usage;
