//! The promises of workflows on the real stack: nats-server, gateway, workers, nodes and runners as programs.
//! One binary, because each binary costs time to link.

mod crash_points;
mod pytest;
mod reviews;
mod saver;
mod stage;
mod storm;
mod two_runners;
