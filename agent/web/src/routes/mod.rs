//! What each path answers.

mod app;
mod burst_list;
mod health;
mod metrics;
mod pages;
mod profile;
mod records;
pub(crate) mod router;
mod timeline;
mod unwatched;
