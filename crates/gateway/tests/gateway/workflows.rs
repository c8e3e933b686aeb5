//! Workflows: from `workflow.start` over the queue to rows, jobs and handoffs. Tests play the runner, the
//! node and the manager on real streams.

mod arguments;
mod brought_back;
mod browser;
mod checkpoints;
mod console;
mod denied_jobs;
mod dependencies;
mod fencing;
mod given_up;
mod handoff_jobs;
mod handoffs;
mod jobs;
mod leases;
mod lost;
mod owners;
mod people;
mod rights;
mod start;
mod steer;
mod support;
mod together;
mod watched;
