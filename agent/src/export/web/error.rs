//! Why a web configuration cannot be used.

use std::path::PathBuf;

/// Why a web configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WebConfigError {
    /// The file, or one that it names.
    #[error("cannot read {}: {why}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        why: String,
    },
    /// It is no YAML, or has a field that is not known, or a wrong value.
    #[error("the web configuration {}: {why}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        why: String,
    },
    /// What it says of TLS cannot be done.
    #[error("the web configuration {}, tls_server_config: {why}", path.display())]
    Tls {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A password is not hashed as it has to be.
    #[error(
        "the web configuration {}, basic_auth_users, {user}: not a bcrypt hash; \
         `htpasswd -nBC 10 {user}` makes one", path.display()
    )]
    Hash {
        /// The file.
        path: PathBuf,
        /// Whose.
        user: String,
    },
}
