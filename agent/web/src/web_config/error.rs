//! Why a web configuration cannot be used.

use std::path::PathBuf;

/// Why a web configuration cannot be used: the file, and what is wrong with it.
#[derive(Debug, thiserror::Error)]
pub enum WebConfigError {
    /// The configuration, or a file that it names, cannot be read.
    #[error("cannot read {path}: {1}", path = .0.display())]
    Unreadable(PathBuf, String),
    /// It is not YAML, or has an unknown field or a wrong value.
    #[error("the web configuration {path}: {1}", path = .0.display())]
    Syntax(PathBuf, String),
    /// It asks for neither TLS nor a password. A file that was emptied by mistake is not to open everything.
    #[error(
        "the web configuration {path} protects nothing: it has neither tls_server_config nor basic_auth_users. To serve \
         everyone, run without web-config", path = .0.display()
    )]
    Nothing(PathBuf),
    /// Its TLS settings cannot be used.
    #[error("the web configuration {path}, tls_server_config: {1}", path = .0.display())]
    Tls(PathBuf, String),
    /// A password is not hashed as it has to be.
    #[error("the web configuration {path}, basic_auth_users, {1}", path = .0.display())]
    Users(PathBuf, String),
}
