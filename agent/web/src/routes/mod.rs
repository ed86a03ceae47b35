//! What each path answers.

mod app;
mod burst_list;
mod metrics;
mod pages;
mod records;
pub(crate) mod router;
mod timeline;
