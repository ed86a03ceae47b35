//! What takes long, or needs more of the machine than a server and the agent.

mod auto;
mod candidate;
mod clients;
mod clock;
mod containers;
mod descriptors;
mod ended;
mod exclude;
mod expired;
mod faults;
mod forms;
mod hostile;
mod keys;
mod limit;
mod margins;
mod members;
mod names;
mod profile;
mod selftest;
mod service;
mod surroundings;
mod trace;
mod unrun;
mod waits;
mod web;
mod withdrawal;
