//! `GET /-/healthy` and `/-/ready`, for load balancers and service managers.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;

use super::app::App;

/// A loop that has not turned for this long hangs. It turns ten times a second, and no turn takes seconds.
const HANGS: Duration = Duration::from_secs(10);

pub(super) async fn healthy(State(app): State<App>) -> (StatusCode, String) {
    health(app.shared.since_last_turn())
}

/// Returns the answer of an agent whose loop last turned `silent` ago.
fn health(silent: Duration) -> (StatusCode, String) {
    if silent < HANGS {
        return (StatusCode::OK, "healthy\n".to_owned());
    }
    let text = format!(
        "not healthy: the loop that watches the servers has not turned for {} s; \
         restart the agent, and please report this with its log\n",
        silent.as_secs()
    );
    (StatusCode::SERVICE_UNAVAILABLE, text)
}

pub(super) async fn ready(State(app): State<App>) -> (StatusCode, &'static str) {
    match app.shared.servers() {
        Some(_) => (StatusCode::OK, "ready\n"),
        None => (
            StatusCode::SERVICE_UNAVAILABLE,
            "not ready: still looking for servers and attaching to them\n",
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::http::StatusCode;

    use super::{HANGS, health};

    #[test]
    fn a_loop_that_does_not_turn_is_not_healthy() {
        assert_eq!(health(HANGS - Duration::from_millis(1)).0, StatusCode::OK);
        let (status, text) = health(HANGS);
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(text.contains("has not turned for 10 s"), "{text}");
    }
}
