//! What each path answers.

pub(crate) mod app;
pub(crate) mod burst_list;
pub(crate) mod health;
pub(crate) mod metrics;
pub(crate) mod pages;
pub(crate) mod profile;
pub(crate) mod records;
pub(crate) mod router;
pub(crate) mod timeline;
pub(crate) mod unwatched;
