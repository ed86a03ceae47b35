//! What each path answers.

mod app;
mod metrics;
mod pages;
mod records;
pub(crate) mod router;
mod timeline;
