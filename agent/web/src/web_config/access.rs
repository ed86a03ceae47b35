//! Asks for a password, where the web configuration says so.

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use headers::HeaderMapExt as _;
use headers::authorization::{Authorization, Basic};

use super::config::Web;

/// Lets a request pass, or answers that it needs the password of a user.
pub async fn guard(State(web): State<Web>, request: Request, next: Next) -> Response {
    let protection = web.now();
    let Some(users) = &protection.users else {
        return next.run(request).await;
    };
    if let Some(Authorization(shown)) = request.headers().typed_get::<Authorization<Basic>>()
        && users.admit(shown.username(), shown.password()).await
    {
        return next.run(request).await;
    }
    let ask = [(header::WWW_AUTHENTICATE, "Basic realm=\"evictscope\"")];
    (StatusCode::UNAUTHORIZED, ask, "unauthorized\n").into_response()
}
