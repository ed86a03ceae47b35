//! What the project is for.

mod alert;
mod budget;
mod builds;
mod expire;
pub mod hostile;
pub mod killed;
mod lifecycle;
mod numbers;
pub mod pages;
mod phases;
mod records;
mod replaced;
