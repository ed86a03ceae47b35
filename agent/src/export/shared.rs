//! What the run loop hands to the HTTP server.

use std::sync::Arc;

use tokio::sync::watch;

use super::server::ExportedServer;

/// The servers as the run loop knows them. Clones share the same view; neither side waits for the
/// other longer than it takes to exchange a pointer.
#[derive(Clone, Debug)]
pub struct Shared(Arc<watch::Sender<Option<Arc<[ExportedServer]>>>>);

impl Default for Shared {
    /// Nothing was published yet: not ready.
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }
}

impl Shared {
    /// Replaces all servers. The first call, to be made when the first scan is done and its
    /// servers are attached, makes the agent ready.
    pub fn publish(&self, servers: Vec<ExportedServer>) {
        self.0.send_replace(Some(servers.into()));
    }

    /// Waits for the first call of [`Self::publish`].
    pub async fn ready(&self) {
        // There is a sender for as long as there is this.
        let _ = self.0.subscribe().wait_for(Option::is_some).await;
    }

    /// The servers last published; `None` before the first time.
    pub(super) fn servers(&self) -> Option<Arc<[ExportedServer]>> {
        self.0.borrow().clone()
    }
}
