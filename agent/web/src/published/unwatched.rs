//! The servers that run here and are not watched. `GET /api/v1/unwatched` lists them, as JSON.

use serde::Serialize;

/// A server that runs on this host and is not watched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unwatched {
    /// What it would be called in the label `server`.
    pub server: String,
    /// Process id.
    pub pid: u32,
    /// The kind of reason.
    pub reason: Reason,
    /// What went wrong and, if something can be done, what to do.
    pub why: String,
}

/// Why a server is not watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "&str")]
pub enum Reason {
    /// The agent may not look into it.
    Permission,
    /// Its executable cannot be analysed.
    Executable,
    /// The process that analysed it was ended, or failed.
    Planning,
    /// No process or thread could be started, or a file system does not answer. It is tried again.
    Resources,
    /// Its memory cannot be read, or the kernel refuses the probes. It is tried again.
    Attach,
}

impl Reason {
    /// All reasons, in the order in which they are shown.
    pub(crate) const ALL: [Self; 5] =
        [Self::Permission, Self::Executable, Self::Planning, Self::Resources, Self::Attach];
}

/// The spelling in the label `reason` and in the field of that name.
impl From<Reason> for &'static str {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Permission => "permission",
            Reason::Executable => "executable",
            Reason::Planning => "planning",
            Reason::Resources => "resources",
            Reason::Attach => "attach",
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::fixture::unwatched;

    #[test]
    fn a_server_is_listed_with_the_reason_and_the_text() -> serde_json::Result<()> {
        let json = serde_json::to_string(&unwatched())?;
        let expected = r#"{"server":"6380","pid":43,"reason":"executable","why":"Redis <5> is too old"}"#;
        assert_eq!(json, expected);
        Ok(())
    }
}
